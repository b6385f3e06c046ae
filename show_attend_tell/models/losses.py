"""Compute the terms of the objective, one value per caption.

Every term is summed over the words of a caption, so that the loss of a batch is the
mean of its captions' losses whatever the batch and its padding are.
"""

import functools
from collections.abc import Callable

import keras
from keras import ops


@keras.saving.register_keras_serializable("show_attend_tell")
class CaptionMean(keras.losses.Loss):
    """The mean over captions of losses that are already sums over words."""

    def __init__(self, name="caption_mean", reduction="mean_with_sample_weight"):
        super().__init__(name=name, reduction=reduction)

    def call(self, y_true, y_pred):
        """Return `y_pred`, (B,); `y_true` is not used."""
        return y_pred


def token_losses(
    logits,
    targets,
    label_smoothing=0.0,
    compile_fn: Callable = lambda function: function,
):
    """Return the negative log-likelihood -log p(y_t | a, y_<t) of every word, in nats.

    With smoothing epsilon the true distribution becomes (1 - epsilon) on the true
    word plus epsilon / K on every word (Szegedy et al., 2016, Sec. 7).

    Args:
        logits: (B, T, K).
        targets: word ids, (B, T).
        label_smoothing: epsilon in [0, 1).
        compile_fn: see :meth:`CompiledParts.compiled`.

    Returns:
        (B, T).
    """
    # With a gradient of its own, as TensorFlow's cross entropy and its gradient take
    # four times as long on a CPU, and more memory.
    cross_entropy, cross_entropy_gradient = _cross_entropy(label_smoothing)
    forward = compile_fn(cross_entropy)
    backward = compile_fn(cross_entropy_gradient)

    @ops.custom_gradient
    def run(logits):
        losses, total = forward(logits, targets)
        return losses, lambda upstream: backward(logits, total, targets, upstream)

    return run(logits)


@functools.cache  # equal functions are compiled once
def _cross_entropy(label_smoothing):
    """Return the function of :func:`token_losses` and its gradient function."""

    def cross_entropy(logits, targets):
        """Return the losses and log sum_k exp l_k, (B, T) each."""
        total = ops.logsumexp(logits, axis=-1)  # (B, T, K) -> (B, T)
        true = ops.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        expected = (1 - label_smoothing) * true
        if label_smoothing:
            expected = expected + label_smoothing * ops.mean(logits, axis=-1)
        # The gradient needs log sum_k exp l_k, (B, T), and computes p again from it: p
        # itself would be kept as (B, T, K).
        return total - expected, total

    def cross_entropy_gradient(logits, total, targets, upstream):
        """Return the gradient, (p - the smoothed true distribution), (B, T, K)."""
        K = logits.shape[-1]
        # softmax(l) = exp(l - log sum_k exp l_k), which never overflows.
        p = ops.exp(logits - total[..., None])  # (B, T, K)
        words = ops.cast(targets, "int32")[..., None]  # (B, T, 1)
        # Compared, not scattered: under XLA on a CPU the gradient of a gather over the
        # vocabulary made a training step several times slower.
        is_true = ops.equal(ops.arange(K, dtype="int32"), words)  # (B, T, K)
        share = label_smoothing / K
        true_p = ops.where(is_true, 1 - label_smoothing + share, share)
        return (p - ops.cast(true_p, p.dtype)) * upstream[..., None]

    return cross_entropy, cross_entropy_gradient


def doubly_stochastic(alpha, mask):
    """Return sum_i (1 - sum_t alpha_ti)^2 of each caption, Eq. (14).

    Args:
        alpha: (B, T, L).
        mask: 1 for a word of the caption, 0 for padding, (B, T).

    Returns:
        (B,).
    """
    # (B, T, L), (B, T) -> (B, L): attention that each location received
    received = ops.einsum("btl,bt->bl", alpha, ops.cast(mask, alpha.dtype))
    return ops.sum(ops.square(1 - received), axis=-1)  # (B, L) -> (B,)
