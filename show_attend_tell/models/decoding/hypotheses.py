"""Define the tensor operations that the loops of decoding share."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

Tensor = Any
Step = Callable[[Tensor, dict], tuple[Tensor, dict, dict]]


def first_inputs(initial_state: dict, batch_size: int | Tensor, start_id: int):
    """Return the tokens (B, 1) and the state (B, 1, ...) of the first step."""
    tokens = ops.full((batch_size, 1), start_id, dtype="int32")
    return tokens, keras.tree.map_structure(
        lambda x: ops.expand_dims(x, 1), initial_state
    )


def call(step: Step, tokens: Tensor, state: dict, forbidden: Sequence[int]):
    """Call the step and set the log-probabilities of the forbidden words to -inf."""
    log_probs, state, extras = step(tokens, state)
    mask = np.zeros(log_probs.shape[-1], "float32")  # (K,)
    mask[list(forbidden)] = -np.inf
    # (B, W, K) + (K,)
    return ops.cast(log_probs, "float32") + mask, state, extras


def pick(x: Any, index: Tensor) -> Any:
    """Gather along axis 1: ``out[b, u] = x[b, index[b, u]]``.

    Args:
        x: (B, V, ...), or a nested structure of such tensors of one V, possibly empty.
        index: (B, U) int32 in [0, V).

    Returns:
        (B, U, ...), or the structure of them.
    """
    tensors = keras.tree.flatten(x)
    # A model without state has an empty dict, which gives no B and V.
    if not tensors:
        return x
    B, V = ops.shape(tensors[0])[:2]
    # Rows of all photos in one axis: one `take` in place of a batched gather. The index
    # serves all tensors of a structure.
    first = ops.expand_dims(ops.arange(B, dtype="int32") * V, 1)  # (B, 1)
    index = first + index  # (B, U), of the rows of all photos

    def gather(x: Tensor) -> Tensor:
        rows = ops.reshape(x, (-1, *x.shape[2:]))  # (B, V, ...) -> (B V, ...)
        return ops.take(rows, index, axis=0)  # -> (B, U, ...)

    return keras.tree.map_structure(gather, x)


def new_record(x: Tensor, max_words: int) -> Tensor:
    """Return zeros (B, W, T, ...), a buffer for one (B, W, ...) at each of T words."""
    return ops.repeat(ops.expand_dims(ops.zeros_like(x), 2), max_words, axis=2)


def record(buffer: Tensor, x: Tensor, t: Tensor) -> Tensor:
    """Return the buffer (B, W, T, ...) with ``x`` (B, W, ...) at word ``t``."""
    T = buffer.shape[2]
    trailing = len(buffer.shape) - 3
    at_t = ops.equal(ops.arange(T, dtype="int32"), t)  # (T,)
    at_t = ops.reshape(at_t, (-1,) + (1,) * trailing)  # (T,) -> (T, 1, ...)
    # (B, W, ...) -> (B, W, 1, ...), repeated over T by broadcasting
    return ops.where(at_t, ops.expand_dims(x, 2), buffer)


def clear_after(x: Tensor, lengths: Tensor, value: float = 0) -> Tensor:
    """Return ``x`` (B, W, T, ...) with ``value`` after the lengths (B, W)."""
    T = x.shape[2]
    trailing = len(x.shape) - 3
    # (T,) < (B, W, 1) -> (B, W, T)
    inside = ops.arange(T, dtype="int32") < ops.expand_dims(lengths, 2)
    # (B, W, T) -> (B, W, T, 1, ...)
    inside = ops.reshape(inside, ops.shape(inside) + (1,) * trailing)
    return ops.where(inside, x, ops.cast(value, x.dtype))
