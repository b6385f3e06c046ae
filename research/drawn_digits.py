"""Draw digits in the fonts of Matplotlib, for notebooks without downloads."""

import math
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from show_attend_tell.siblings.digits.data import CLASSES, Digits, digit_of_image

_FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralItalic",
    "cmr10",
    "cmss10",
    "cmtt10",
)
# of the drawing and of a digit in it, in pixels
_SIDE = 80
_SIZE = 56
# at most, to either side
_TURN = math.radians(18)
_SLANT = 0.3
_STRETCH = 0.25  # at most, of the width


def drawn_digits(count: int, seed: int = 0) -> Digits:
    """Return digits in random fonts, turned, slanted and stretched at random.

    Args:
        count: number of digits; the numbers of two classes differ by at most one.
        seed: seed of fonts, shapes and order.
    """
    rng = np.random.default_rng(seed)
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / f"{name}.ttf"), _SIZE) for name in _FONTS]
    labels = rng.permutation(np.arange(count) % CLASSES).astype(np.uint8)
    images = [_draw(f"{k}", fonts[rng.integers(len(fonts))], rng) for k in labels]
    return Digits(np.stack(images), labels)


def _draw(text: str, font, rng: np.random.Generator) -> np.ndarray:
    """Draw a digit, (28, 28) uint8."""
    image = Image.new("L", (_SIDE, _SIDE))
    middle = _SIDE / 2
    ImageDraw.Draw(image).text((middle, middle), text, 255, font, anchor="mm")
    turn, slant, stretch = rng.uniform(-1, 1, 3) * (_TURN, _SLANT, _STRETCH)
    cos = math.cos(turn)
    sin = math.sin(turn)
    # Pillow's matrix maps points of the result to points of the source.
    matrix = np.array([[cos, -sin], [sin, cos]]) @ [[1 + stretch, slant], [0, 1]]
    shift = middle - matrix @ (middle, middle)
    values = [*matrix[0], shift[0], *matrix[1], shift[1]]
    kind = Image.Transform.AFFINE
    filtering = Image.Resampling.BILINEAR
    return digit_of_image(image.transform(image.size, kind, values, filtering))
