"""Turn a photo or a drawing of one digit into a picture as MNIST has them.

As the authors of MNIST did: the ink is scaled into 20 x 20 pixels with its proportions
kept, and its centre of mass is in the middle of 28 x 28 pixels.
"""

import numpy as np
from PIL import Image

from show_attend_tell.config.siblings import DIGIT
from show_attend_tell.runtime.errors import PhotoError

_BOX = 20  # longer side of the ink, in pixels
_LEAST = 24  # brightness by which ink differs from the ground, of 255
_INK = 0.3  # share of the darkest ink above which a pixel is part of the digit


def digit_of_image(image: Image.Image) -> np.ndarray:
    """Return the digit of an image, (28, 28) uint8, where 255 is ink.

    The ground is the brightness of most of the border, so that ink may be darker or
    brighter than it.

    Raises:
        PhotoError: the image has no ink.
    """
    grey = np.asarray(image.convert("L"), np.float32)  # (H, W)
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    ink = np.abs(grey - np.median(border))
    most = float(ink.max())
    if most < _LEAST:
        raise PhotoError(
            "`photo` must show a digit. Received: the same brightness everywhere; draw "
            "a digit, or choose another photo"
        )
    ink = np.where(ink > _INK * most, ink / most, 0)
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = _BOX / max(ink.shape)
    height, width = (max(1, round(side * scale)) for side in ink.shape)
    small = Image.fromarray(np.uint8(np.round(255 * ink)))
    small = np.asarray(small.resize((width, height), Image.Resampling.BOX))
    return _centred(small)


def _centred(ink: np.ndarray) -> np.ndarray:
    """Place ink of at most 20 x 20 pixels with its centre of mass in the middle."""
    digit, corner = np.zeros((DIGIT, DIGIT), np.uint8), []
    for axis, side in enumerate(ink.shape):
        weights = ink.sum(axis=1 - axis, dtype=np.float64)
        centre = np.average(np.arange(side) + 0.5, weights=weights)
        first = round(DIGIT / 2 - centre)
        corner.append(min(max(first, 0), DIGIT - side))
    top, left = corner
    digit[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return digit
