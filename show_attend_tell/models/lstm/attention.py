"""Compute the LSTM decoder's attention: e, alpha, context phi, gate beta and z_hat.

The Transformer's attention is in :mod:`models.transformer.attention`.

Eq. (4) is written four times: :func:`attention_scores` is the equation itself;
:mod:`models.lstm.fast_gradient` trains, with a gradient written by hand;
:func:`tanh_scores` searches; :func:`reference.lstm.attention_scores` captions without
Keras. ``tests/models/lstm/test_four_attentions.py`` compares them. With
``model.fast_gradient = false`` training and Keras' search run
:func:`attention_scores`: change that function to change the method.

One notation for the whole package; sizes: B batch, L locations, D annotation width,
A attention width, T words, K vocabulary, n LSTM, m embedding, W beam.

=============== ============ ====================================================
symbol          shape        meaning
=============== ============ ====================================================
a               (B, L, D)    annotation vectors of a photo
h, c            (B, n)       LSTM state and memory; (B, W, n) in a beam search
e, alpha        (B, L)       scores and weights of the locations at one step
s               (B, L)       one-hot location of hard attention
z_hat           (B, D)       context vector
beta            (B, 1)       gate of the context
E y             (B, m)       embedded word
=============== ============ ====================================================

Soft attention is :func:`attend`. Hard attention is the same function with
`select_weights`; :mod:`show_attend_tell.models.lstm.hard_attention` trains it.
"""

from collections.abc import Callable
from typing import NamedTuple

from keras import ops

from show_attend_tell.models.decoding.sampling import sample_index

# Of f_att, by the values of ``model.activation``.
ACTIVATIONS = {"tanh": ops.tanh, "relu": ops.relu}

_LIMIT = 43.0  # exp(2 * 43) and its inverse are finite in float32


class Attention(NamedTuple):
    """The result of :func:`attend`; (B, W, ...) in a beam search."""

    z_hat: object  # (B, D)
    alpha: object  # (B, L)
    context_weights: object  # (B, L), the weights of phi: alpha, or one-hot s
    beta: object  # (B,)


def attend(
    annotations,
    projected,
    state,
    w_att,
    beta_logit=None,
    select_weights: Callable | None = None,
    bias=None,
    activation: str = "tanh",
) -> Attention:
    """Compute one step of attention, Eq. (4)-(6), and gate it, Sec. 4.2.1.

    alpha = softmax(e), phi = sum_i alpha_i a_i, beta = sigma(f_beta(h_{t-1})) and
    z_hat = beta phi.

    Args:
        annotations: a, (B, L, D).
        projected: W_a a + b, (B, L, A), see :func:`attention_scores`.
        state: W_h h_{t-1}, (B, A) or (B, W, A).
        w_att: (A,).
        beta_logit: f_beta(h_{t-1}), (B, 1) or (B, W, 1); None means beta = 1.
        select_weights: for hard attention, alpha -> context weights of the same shape;
            None averages by alpha itself, as soft attention does.
        bias: added to e, of its shape, see :func:`reference.lstm.region_bias`; None
            adds nothing.
        activation: of f_att, ``tanh`` or ``relu``.
    """
    e = attention_scores(projected, state, w_att, activation)  # (B, L) or (B, W, L)
    if bias is not None:
        e = e + ops.cast(bias, e.dtype)
    alpha = attention_weights(e)
    weights = alpha if select_weights is None else select_weights(alpha)
    phi = context(annotations, weights)  # (B, D) or (B, W, D)
    if beta_logit is None:
        return Attention(phi, alpha, weights, ops.ones_like(alpha[..., 0]))
    beta = ops.sigmoid(beta_logit)  # the authors' ``_selector``
    return Attention(beta * phi, alpha, weights, beta[..., 0])


def attention_weights(e):
    """Return alpha, the softmax of the scores e (..., L), Eq. (5)."""
    if e.shape[-1] == 1:  # Keras warns of a softmax over one value, 1
        # Not ones: f_att must have a gradient, which is 0. Autodiff of TensorFlow would
        # give it none, which the optimisers refuse.
        return e - e + 1.0
    return ops.softmax(e, axis=-1)


class ExponentialProjection(NamedTuple):
    """exp(2 (W_a a + b)), from which :func:`tanh_scores` computes tanh."""

    values: object  # (B, L, A), from exp_twice


def exp_twice(value):
    """Return exp(2 value), clipped so that neither it nor its inverse overflows."""
    return ops.exp(2 * ops.clip(value, -_LIMIT, _LIMIT))


def tanh_scores(exp_projected, state, w_att):
    """Return the scores of Eq. (4) less a constant, e_ti - w_att . 1, (..., L).

    One of four forms of Eq. (4), see the module docstring: the others are
    :func:`attention_scores`, :mod:`models.lstm.fast_gradient` and
    :func:`reference.lstm.attention_scores`;
    ``tests/models/lstm/test_four_attentions.py`` compares them.

    With r = 1 / (1 + exp(2P) exp(2s)) it is -2 r . w_att, as tanh(P + s) = 1 - 2r; a
    term equal for all locations cancels in the softmax. exp(2P) is computed once per
    photo, exp(2s) once per step, where tanh would be computed for every location.

    ``exp_projected`` is exp(2P), (B, L, A) or (B, 1, L, A), and ``state`` s.
    """
    exp_state = ops.expand_dims(exp_twice(state), -2)  # (..., A) -> (..., 1, A)
    # The product of two large factors may be infinite; r = 0 is then right.
    r = 1 / (1 + exp_projected * exp_state)  # (..., L, A)
    # (..., L, A) @ (A, 1) -> (..., L)
    return ops.squeeze(ops.matmul(r, ops.expand_dims(-2 * w_att, -1)), -1)


def attention_scores(projected, state, w_att, activation: str = "tanh"):
    """Score every location: e_ti = w_att . tanh(W_a a_i + W_h h_{t-1} + b), Eq. (4).

    The tanh is the authors'. Training and search run this function with
    ``model.fast_gradient = false`` only. Otherwise training runs
    :mod:`models.lstm.fast_gradient` and search :func:`tanh_scores`; captions without
    Keras come from :func:`reference.lstm.attention_scores`.
    ``tests/models/lstm/test_four_attentions.py`` compares the four.

    Args:
        projected: W_a a + b, (B, L, A), computed once per photo; or its
            ExponentialProjection, which gives the scores of :func:`tanh_scores`.
        state: W_h h_{t-1}, (B, A), or (B, W, A) for the hypotheses of a beam.
        w_att: (A,).
        activation: ``tanh``, or ``relu``, which has no ExponentialProjection.

    Returns:
        e of shape (B, L) or (B, W, L).
    """
    is_exponential = isinstance(projected, ExponentialProjection)
    if is_exponential:
        projected = projected.values
    if len(state.shape) == 3:
        projected = ops.expand_dims(projected, 1)  # (B, L, A) -> (B, 1, L, A)
    if is_exponential:
        return tanh_scores(projected, state, w_att)
    state = ops.expand_dims(state, -2)  # (..., A) -> (..., 1, A)
    hidden = ACTIVATIONS[activation](projected + state)  # (..., L, A)
    # (..., L, A) @ (A, 1) -> (..., L)
    return ops.squeeze(ops.matmul(hidden, ops.expand_dims(w_att, -1)), -1)


def context(annotations, weights):
    """Return phi = sum_i w_ti a_i, the context before the gate, (B, D) or (B, W, D).

    Weighted by alpha it is the soft phi (Sec. 4.2); by a one-hot s_t the hard one,
    Eq. (9): the annotation of one location.

    Args:
        annotations: a, (B, L, D).
        weights: (B, L), or (B, W, L) for the hypotheses of a beam.
    """
    if len(weights.shape) == 3:
        return ops.matmul(weights, annotations)  # (B, W, L) @ (B, L, D) -> (B, W, D)
    # (B, 1, L) @ (B, L, D) -> (B, D)
    return ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), annotations), 1)


def argmax_location(alpha):
    """Return the one-hot argmax of alpha, of equal ones the first; (..., L)."""
    return ops.one_hot(ops.argmax(alpha, axis=-1), alpha.shape[-1], dtype=alpha.dtype)


def sampled_location(alpha, u):
    """Return one-hot s_t ~ Multinoulli(alpha_t), Eq. (8), without a gradient, (..., L).

    Args:
        alpha: (..., L).
        u: uniform numbers in [0, 1), (..., 1).
    """
    index = sample_index(alpha, u)  # (..., L) -> (...)
    s = ops.one_hot(index, alpha.shape[-1], dtype=alpha.dtype)  # (...) -> (..., L)
    return ops.stop_gradient(s)
