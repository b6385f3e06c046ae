"""Read the crop of a word, and bring crops to the mean and deviation of the network.

Preparation, evaluation and the verb ``read`` all use these functions, so that training
and inference have the same pixels.
"""

import os
from typing import IO

import numpy as np
from PIL import Image

from show_attend_tell.data.preprocessing import load_photo

HEIGHT, WIDTH = 32, 100  # pixels
# Grey levels by which a crop is divided at least, so that noise of one level in an
# empty crop does not become a picture.
LEAST_DEVIATION = 1.0


def read_crop(file: str | os.PathLike | IO[bytes]) -> np.ndarray:
    """Read the crop of a word, (32, 100) uint8.

    The EXIF orientation is applied, and the crop made grey and resized, bicubic,
    without regard to its proportions.

    Args:
        file: path or open binary file.

    Raises:
        PhotoError: the file is absent, not a regular file, or cannot be decoded.
    """
    return resize_crop(load_photo(file))


def resize_crop(image: Image.Image) -> np.ndarray:
    """Return an image of a word, grey and resized, (32, 100) uint8."""
    grey = image.convert("L")
    return np.asarray(grey.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.uint8)


def normalise(crops: np.ndarray) -> np.ndarray:
    """Return (x - mean) / deviation of each crop itself.

    Args:
        crops: (..., 32, 100) grey levels from 0 to 255.

    Returns:
        The same shape in float32; a crop of one grey level is 0 everywhere.
    """
    x = np.asarray(crops, np.float32)
    mean = x.mean(axis=(-2, -1), keepdims=True)
    deviation = x.std(axis=(-2, -1), keepdims=True)
    return (x - mean) / np.maximum(deviation, LEAST_DEVIATION)
