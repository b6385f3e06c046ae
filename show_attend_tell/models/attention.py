"""Where to look: f_att, the weights alpha, the context phi and the gate beta.

One notation for the whole package; sizes: B batch, L locations, D annotation width,
A attention width, T words, K vocabulary, n LSTM, m embedding, W beam.

=============== ============ ====================================================
symbol          shape        what
=============== ============ ====================================================
a               (B, L, D)    annotation vectors of a photo
h, c            (B, n)       LSTM state and memory; (B, W, n) while a beam decodes
e, alpha        (B, L)       scores and weights of the locations at one step
s               (B, L)       one-hot location of hard attention
z_hat           (B, D)       context vector
beta            (B, 1)       gate of the context
E y             (B, m)       embedded word
=============== ============ ====================================================
"""

from keras import ops

from show_attend_tell.decoding import categorical


def attention_scores(projected, state, w_att, activation):
    """Score every location: e_ti = w_att . act(W_a a_i + W_h h_{t-1} + b), Eq. (4).

    Args:
        projected: W_a a, (B, L, A), computed once per photo.
        state: W_h h_{t-1} + b, (B, A), or (B, W, A) for the hypotheses of a beam.
        w_att: (A,).
        activation: tanh in the authors' code.

    Returns:
        e of shape (B, L) or (B, W, L).
    """
    if len(state.shape) == 3:
        projected = ops.expand_dims(projected, 1)  # (B, L, A) -> (B, 1, L, A)
    hidden = activation(projected + ops.expand_dims(state, -2))
    return ops.squeeze(ops.matmul(hidden, ops.expand_dims(w_att, -1)), -1)


def context(annotations, weights):
    """Return phi = sum_i w_ti a_i, the context before the gate.

    Weighted by alpha it is the soft phi (Sec. 4.2); by a one-hot s_t the hard one,
    Eq. (9): the annotation of one location.

    Args:
        annotations: a, (B, L, D).
        weights: (B, L), or (B, W, L) for the hypotheses of a beam.

    Returns:
        (B, D) or (B, W, D).
    """
    if len(weights.shape) == 3:
        return ops.matmul(weights, annotations)
    return ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), annotations), 1)


def likeliest_location(alpha):
    """Return the one-hot of the largest alpha, of equal ones the first; (..., L)."""
    return ops.one_hot(ops.argmax(alpha, axis=-1), alpha.shape[-1], dtype=alpha.dtype)


def drawn_location(alpha, u):
    """Return one-hot s_t ~ Multinoulli(alpha_t), Eq. (8).

    No gradient passes through the draw.

    Args:
        alpha: (..., L).
        u: uniform numbers in [0, 1), (..., 1).

    Returns:
        s, (..., L).
    """
    s = ops.one_hot(categorical.draw(alpha, u), alpha.shape[-1], dtype=alpha.dtype)
    return ops.stop_gradient(s)


def gate(logit):
    """Gate the context: beta_t = sigma(f_beta(h_{t-1})), Sec. 4.2.1 (``_selector``).

    Args:
        logit: f_beta(h_{t-1}), (B, 1) or (B, W, 1).

    Returns:
        beta in (0, 1), of the same shape.
    """
    return ops.sigmoid(logit)
