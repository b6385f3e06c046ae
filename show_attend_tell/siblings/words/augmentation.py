"""Change training crops a little: place, size, slant, gamma and noise, on the device.

The amounts are random numbers from NumPy. They depend only on the seed, the epoch and
the number of the batch, so that a resumed training sees the same crops. Contrast and
brightness stay the same, because crops are normalised afterwards.
"""

from typing import NamedTuple

import numpy as np
from keras import ops

from show_attend_tell.siblings.words.data import HEIGHT, LEAST_DEVIATION, WIDTH

FARTHEST = 2.0  # pixels by which a crop moves, at most
ZOOM = 0.08  # share by which each side grows or shrinks, at most
SLANT = 0.15  # columns per row, at most, to either side
TURN = 0.03  # rows per column, at most: 1.7 degrees
GAMMAS = (0.6, 1.6)  # exponents of grey levels
MOST_NOISE = 12.0  # grey levels, deviation of the noise
_WHITE = 255.0


class Changes(NamedTuple):
    """The amounts by which the crops of a batch are changed."""

    # (B, 8) float32, a .. h of ops.image.affine_transform: the pixel (x, y) of the
    # result is the crop's pixel (a x + b y + c, d x + e y + f); g and h are 0.
    transform: np.ndarray
    gamma: np.ndarray  # (B, 1, 1) float32
    noise: np.ndarray  # (B, 32, 100) float32, in grey levels


def draw_changes(rng: np.random.Generator, batch: int) -> Changes:
    """Sample the changes of a batch of B crops."""
    transform, gamma, deviation = draw_amounts(rng, batch)
    noise = rng.standard_normal((batch, HEIGHT, WIDTH), np.float32)
    return Changes(transform, gamma, deviation * noise)


def draw_amounts(rng: np.random.Generator, batch: int) -> tuple[np.ndarray, ...]:
    """Sample transforms, gammas and the deviations of the noise, (B, 1, 1)."""
    wide, high = 1 + rng.uniform(-ZOOM, ZOOM, (2, batch))
    slant = rng.uniform(-SLANT, SLANT, batch)
    turn = rng.uniform(-TURN, TURN, batch)
    right, down = rng.uniform(-FARTHEST, FARTHEST, (2, batch))
    # Uniform in the logarithm: brighter and darker crops are about as frequent.
    bounds = np.log(GAMMAS)
    gamma = np.exp(rng.uniform(bounds[0], bounds[1], (batch, 1, 1)))
    deviation = rng.uniform(0, MOST_NOISE, (batch, 1, 1)).astype(np.float32)
    transform = make_transform(wide, high, slant, turn, right, down)
    return transform, gamma.astype(np.float32), deviation


def make_transform(wide, high, slant, turn, right, down) -> np.ndarray:
    """Return the transforms (B, 8) around the middle of the crops.

    The arguments are (B,): the pixels of the crop per pixel of the result along a row
    and along a column; the columns of the crop per row of the result, and the rows per
    column; and the columns and rows from the crop's middle to the pixel that becomes
    the middle of the result.
    """
    x = (WIDTH - 1) / 2
    y = (HEIGHT - 1) / 2
    # (x, y) of the result is (x + right, y + down) of the crop.
    c = x + right - wide * x - slant * y
    f = y + down - turn * x - high * y
    zero = np.zeros_like(wide)
    rows = (wide, slant, c, turn, high, f, zero, zero)
    return np.stack(rows, axis=1).astype(np.float32)


def change_crops(crops, changes: Changes):
    """Apply changes to crops, (B, 32, 100) in grey levels; the result is clipped.

    Outside a crop the pixels of its border are repeated.
    """
    x = ops.cast(crops, "float32")[..., None]  # (B, 32, 100) -> (B, 32, 100, 1)
    x = ops.image.affine_transform(x, changes.transform, "bilinear", "nearest")
    x = _WHITE * (ops.clip(x[..., 0], 0, _WHITE) / _WHITE) ** changes.gamma
    return ops.clip(x + changes.noise, 0, _WHITE)


def normalised(crops):
    """Return crops (B, H, W) as :func:`words.data.normalise` does, as a tensor."""
    x = ops.cast(crops, "float32")
    mean = ops.mean(x, axis=(1, 2), keepdims=True)
    deviation = ops.std(x, axis=(1, 2), keepdims=True)
    return (x - mean) / ops.maximum(deviation, LEAST_DEVIATION)
