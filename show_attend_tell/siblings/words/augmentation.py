"""Change training crops a little: contrast, place and noise, on the device.

The amounts are random numbers of NumPy, which depend on the seed, the epoch and the
number of the batch alone, so that a resumed training sees the same crops.
"""

from typing import NamedTuple

import numpy as np
from keras import ops

from show_attend_tell.data.word_crops import HEIGHT, LEAST_DEVIATION, WIDTH

FARTHEST = 2  # pixels that a crop is moved by, at most
CONTRASTS = (0.6, 1.8)  # factors of the distance from middle grey
_GREY, _WHITE = 127.5, 255
MOST_NOISE = 12.0  # grey levels, deviation of the noise


class Changes(NamedTuple):
    """The amounts by which the crops of a batch are changed."""

    contrast: np.ndarray  # (B, 1, 1) float32
    brightness: np.ndarray  # (B, 1, 1) float32, in grey levels
    shift: np.ndarray  # (B, 2) int32, rows down and columns to the right
    noise: np.ndarray  # (B, 32, 100) float32, in grey levels


def draw_changes(rng: np.random.Generator, batch: int) -> Changes:
    """Sample the changes of a batch.

    Args:
        rng: the generator.
        batch: B.
    """
    shape = batch, 1, 1
    low, high = np.log(CONTRASTS)
    deviation = rng.uniform(0, MOST_NOISE, shape).astype(np.float32)
    noise = rng.standard_normal((batch, HEIGHT, WIDTH), np.float32)
    return Changes(
        np.exp(rng.uniform(low, high, shape)).astype(np.float32),
        rng.uniform(-40, 40, shape).astype(np.float32),
        rng.integers(-FARTHEST, FARTHEST, (batch, 2), np.int32, endpoint=True),
        deviation * noise,
    )


def change_crops(crops, changes: Changes):
    """Apply changes to crops, (B, 32, 100) in grey levels; the result is clipped.

    Where a crop moves away from a border, the pixels of the border are repeated.
    """
    x = ops.cast(crops, "float32")
    rows = _selection(changes.shift[:, 0], HEIGHT)  # (B, H, H)
    columns = _selection(changes.shift[:, 1], WIDTH)  # (B, W, W)
    x = ops.matmul(ops.matmul(rows, x), ops.transpose(columns, (0, 2, 1)))
    x = (x - _GREY) * changes.contrast + _GREY + changes.brightness
    return ops.clip(ops.clip(x, 0, _WHITE) + changes.noise, 0, _WHITE)


def _selection(shift, side):
    """Return matrices (B, side, side) whose row i selects pixel i - shift."""
    source = ops.expand_dims(ops.arange(side, dtype="int32"), 0)  # (1, side)
    source = ops.clip(source - ops.expand_dims(shift, 1), 0, side - 1)
    return ops.one_hot(source, side, dtype="float32")


def normalised(crops):
    """Return crops (B, H, W) as :func:`data.word_crops.normalise` does, as a tensor."""
    x = ops.cast(crops, "float32")
    mean = ops.mean(x, axis=(1, 2), keepdims=True)
    deviation = ops.std(x, axis=(1, 2), keepdims=True)
    return (x - mean) / ops.maximum(deviation, LEAST_DEVIATION)
