"""Photos as the encoder sees them: decoding, resizing, and where a box ends up.

Every photo of the program, whether extracted, captioned or drawn upon, comes through
:func:`load_photo` and :func:`to_square`, so that training and inference see the same
pixels.
"""

import os
import struct
from typing import IO

import numpy as np
from PIL import Image, ImageOps

from show_attend_tell.runtime.errors import PhotoError

Box = tuple[float, float, float, float]

# What Pillow raises for files that are damaged, cut short, too large or no photo.
UNREADABLE = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    IndexError,
    struct.error,
    Image.DecompressionBombError,
)


def _to_rgb(image: Image.Image) -> Image.Image:
    """Return the picture in RGB: 16 bits scaled to 8, transparency laid on white."""
    if image.mode.startswith("I"):
        grey = np.clip(np.asarray(image, np.float64) / 257, 0, 255)  # 65535 = 257*255
        image = Image.fromarray(np.rint(grey).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def load_photo(file: str | os.PathLike | IO[bytes]) -> Image.Image:
    """Decode a photo, turned as its EXIF orientation says, in RGB.

    Args:
        file: path or open binary file in any format that Pillow reads; the first
            frame of a moving picture counts.

    Raises:
        PhotoError: it cannot be read.
    """
    if not isinstance(file, str | os.PathLike):
        name = getattr(file, "name", "photo")
    else:
        name = os.fspath(file)
    try:
        with Image.open(file) as image:
            return _to_rgb(ImageOps.exif_transpose(image))
    except FileNotFoundError:
        raise PhotoError(f"{name}: no such photo") from None
    except UNREADABLE as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        if isinstance(error, Image.UnidentifiedImageError):
            reason = "no image format that is known"
        raise PhotoError(f"{name}: cannot be read as a photo: {reason}") from None


def seen_region(photo_size: tuple[int, int], side: int, resize: str) -> Box:
    """Return the part of a photo that the network sees.

    ``crop`` scales the shortest side to 8/7 of ``side`` (256 for 224) and cuts the
    centre ``side`` x ``side``, at whole pixels of the scaled photo; ``squash`` takes
    all of it.

    Args:
        photo_size: (width, height) in pixels.
        side: of the network's square, in pixels.
        resize: ``crop`` or ``squash``.

    Returns:
        (x0, y0, x1, y1) in pixels of the photo, in fractions where the cut falls
        between two.
    """
    width, height = photo_size
    if resize == "squash":
        return 0.0, 0.0, float(width), float(height)
    shortest = round(side * 8 / 7)
    scale = shortest / min(width, height)
    wide, high = round(width * scale), round(height * scale)
    left, top = (wide - side) // 2, (high - side) // 2
    across, down = width / wide, height / high  # photo pixels in a scaled pixel
    right = min((left + side) * across, width)  # not past the edge by rounding
    bottom = min((top + side) * down, height)
    return left * across, top * down, right, bottom


def to_square(image: Image.Image, side: int, resize: str) -> np.ndarray:
    """Resize a photo, bicubic, to the square that the network sees.

    Equal to scaling the whole photo and cutting the centre out, but only the cut is
    computed, so that a very long photo costs no more than others.

    Returns:
        (side, side, 3) uint8, RGB.
    """
    region = seen_region(image.size, side, resize)
    square = image.resize((side, side), Image.Resampling.BICUBIC, box=region)
    return np.asarray(square, np.uint8)


def to_view(image: Image.Image, side: int, resize: str, longest: int) -> np.ndarray:
    """Return the part of a photo that the network sees, in its own proportions.

    Args:
        image: RGB.
        side: of the network's square, in pixels.
        resize: ``crop`` or ``squash``.
        longest: side of the view in pixels, not passed; smaller photos stay small.

    Returns:
        (H, W, 3) uint8, RGB.
    """
    region = seen_region(image.size, side, resize)
    width, height = region[2] - region[0], region[3] - region[1]
    scale = min(1.0, longest / max(width, height))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    view = image.resize(size, Image.Resampling.BICUBIC, box=region)
    return np.asarray(view, np.uint8)


def box_to_square(box: Box, photo_size: tuple[int, int], side: int, resize: str) -> Box:
    """Map a box from pixels of the photo to pixels of the network's square.

    Args:
        box: (x0, y0, x1, y1) in pixels of the photo, after its EXIF orientation.
        photo_size: (width, height) in pixels.
        side: of the network's square, in pixels.
        resize: ``crop`` or ``squash``.

    Returns:
        (x0, y0, x1, y1) from 0 to ``side``; what was cut away lies outside of that.
    """
    left, top, right, bottom = seen_region(photo_size, side, resize)
    across, down = side / (right - left), side / (bottom - top)
    x0, y0, x1, y1 = box
    return (
        (x0 - left) * across,
        (y0 - top) * down,
        (x1 - left) * across,
        (y1 - top) * down,
    )


def box_to_photo(box: Box, photo_size: tuple[int, int], side: int, resize: str) -> Box:
    """Map a box from pixels of the network's square to pixels of the photo.

    The inverse of :func:`box_to_square`.
    """
    left, top, right, bottom = seen_region(photo_size, side, resize)
    across, down = (right - left) / side, (bottom - top) / side
    x0, y0, x1, y1 = box
    return (
        left + x0 * across,
        top + y0 * down,
        left + x1 * across,
        top + y1 * down,
    )
