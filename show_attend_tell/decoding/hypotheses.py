"""What decoding returns, and the few tensor operations its loops share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

Tensor = Any
Step = Callable[[Tensor, dict], tuple[Tensor, dict, dict]]


class Hypotheses(NamedTuple):
    """W captions for each of B photos, best first, of at most T words.

    Behind a caption's length ``word_log_probs``, ``alpha`` and ``beta`` are 0.

    Attributes:
        tokens: (B, W, T) int32, without the start word; the end word, then padding.
        lengths: (B, W) int32, words including the end word.
        log_probs: (B, W), log p(caption) in nats. Where a photo has fewer than W
            captions the last ones have -inf, length 0 and nothing but padding.
        scores: (B, W), ``log_probs / lengths ** length_normalisation``, descending.
        word_log_probs: (B, W, T), log p of each word; they sum to ``log_probs``.
        alpha: (B, W, T, L), attention weights with which each word was written.
        beta: (B, W, T), gate with which each word was written.
        locations: (B, W, T) int32, the one location that each word was written from;
            -1 where all were averaged, and behind the length.
        finished: (B, W) bool, False where ``max_words`` came before the end word.
    """

    tokens: Tensor
    lengths: Tensor
    log_probs: Tensor
    scores: Tensor
    word_log_probs: Tensor
    alpha: Tensor
    beta: Tensor
    locations: Tensor
    finished: Tensor


def require_at_least(name: str, value: float, minimum: float, remedy: str) -> None:
    """Raise a ValueError of one line unless ``value >= minimum``."""
    if not value >= minimum:
        raise ValueError(
            f"`{name}` must be at least {minimum}. Received: {name}={value}; {remedy}"
        )


def first_inputs(initial_state: dict, batch_size: int | Tensor, start_id: int):
    """Return the tokens (B, 1) and the state (B, 1, ...) of the first step."""
    tokens = ops.full((batch_size, 1), start_id, dtype="int32")
    return tokens, keras.tree.map_structure(
        lambda x: ops.expand_dims(x, 1), initial_state
    )


def call(step: Step, tokens: Tensor, state: dict, forbidden: Sequence[int]):
    """Call the step; the log-probabilities of the forbidden words become -inf."""
    log_probs, state, extras = step(tokens, state)
    mask = np.zeros(log_probs.shape[-1], "float32")
    mask[list(forbidden)] = -np.inf
    return ops.cast(log_probs, "float32") + mask, state, extras


def pick(x: Tensor, index: Tensor) -> Tensor:
    """Gather along axis 1: ``out[b, u] = x[b, index[b, u]]``.

    Args:
        x: (B, V, ...).
        index: (B, U) int32 in [0, V).

    Returns:
        (B, U, ...).
    """
    B, V = ops.shape(x)[:2]
    first = ops.expand_dims(ops.arange(B, dtype="int32") * V, 1)
    return ops.take(ops.reshape(x, (-1, *x.shape[2:])), first + index, axis=0)


def new_record(x: Tensor, max_words: int) -> Tensor:
    """Return zeros (B, W, T, ...) for one (B, W, ...) at each of T words."""
    return ops.repeat(ops.expand_dims(ops.zeros_like(x), 2), max_words, axis=2)


def record(buffer: Tensor, x: Tensor, t: Tensor) -> Tensor:
    """Return the buffer (B, W, T, ...) with ``x`` (B, W, ...) at word ``t``."""
    here = ops.equal(ops.arange(buffer.shape[2], dtype="int32"), t)
    here = ops.reshape(here, (-1,) + (1,) * (len(buffer.shape) - 3))
    return ops.where(here, ops.expand_dims(x, 2), buffer)


def clear_behind(x: Tensor, lengths: Tensor, value: float = 0) -> Tensor:
    """Return ``x`` (B, W, T, ...) with ``value`` behind the lengths (B, W)."""
    inside = ops.arange(x.shape[2], dtype="int32") < ops.expand_dims(lengths, 2)
    inside = ops.reshape(inside, ops.shape(inside) + (1,) * (len(x.shape) - 3))
    return ops.where(inside, x, ops.cast(value, x.dtype))
