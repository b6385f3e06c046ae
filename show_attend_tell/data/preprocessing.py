"""Decode and resize photos for the encoder, and map boxes between the two.

Extraction, captioning and figures all use :func:`load_photo` and :func:`to_square`, so
that training and inference have the same pixels.
"""

import os
import struct
from typing import IO

import numpy as np
from PIL import Image, ImageOps

from show_attend_tell.runtime.errors import PhotoError

Box = tuple[float, float, float, float]

# Files of a folder with these suffixes, in lower case, are photos.
PHOTO_SUFFIXES = frozenset(
    [".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"]
)

# Errors of Pillow for files that are damaged, truncated, too large or not photos.
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
    """Convert a picture to RGB: 16 bits are scaled to 8, transparency becomes white."""
    if image.mode.startswith("I"):
        grey = np.clip(np.asarray(image, np.float64) / 257, 0, 255)  # 65535 = 257*255
        image = Image.fromarray(np.rint(grey).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def load_photo(file: str | os.PathLike | IO[bytes]) -> Image.Image:
    """Decode a photo to RGB and apply its EXIF orientation.

    Args:
        file: path or open binary file in any format that Pillow decodes; the first
            frame of an animation is used.

    Raises:
        PhotoError: the file is absent or cannot be decoded.
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
            reason = "unknown image format"
        raise PhotoError(f"{name}: cannot be read as a photo: {reason}") from None


def seen_region(photo_size: tuple[int, int], side: int, resize: str) -> Box:
    """Return the region of a photo that becomes the network's input.

    ``crop`` scales the shortest side to 8/7 of ``side`` (256 for 224) and crops the
    centre ``side`` x ``side``, at whole pixels of the scaled photo; ``squash`` keeps
    the whole photo.

    Args:
        photo_size: (width, height) in pixels.
        side: side of the network's square input, in pixels.
        resize: ``crop`` or ``squash``.

    Returns:
        (x0, y0, x1, y1) in pixel coordinates of the photo, not always whole numbers.
    """
    width, height = photo_size
    if resize == "squash":
        return 0.0, 0.0, float(width), float(height)
    shortest = round(side * 8 / 7)
    scale = shortest / min(width, height)
    wide, high = round(width * scale), round(height * scale)
    left, top = (wide - side) // 2, (high - side) // 2
    across, down = width / wide, height / high  # photo pixels in a scaled pixel
    right = min((left + side) * across, width)  # rounding must not exceed it
    bottom = min((top + side) * down, height)
    return left * across, top * down, right, bottom


def to_square(image: Image.Image, side: int, resize: str) -> np.ndarray:
    """Resize a photo, bicubic, to the network's square input.

    The result equals scaling the whole photo and then cropping, but only the crop is
    computed, so that a very long photo costs no more than others.

    Args:
        image: RGB.
        side: side of the square, in pixels.
        resize: ``crop`` or ``squash``.

    Returns:
        (side, side, 3) uint8, RGB.
    """
    region = seen_region(image.size, side, resize)
    square = image.resize((side, side), Image.Resampling.BICUBIC, box=region)
    return np.asarray(square, np.uint8)


def to_view(image: Image.Image, side: int, resize: str, longest: int) -> np.ndarray:
    """Crop a photo to the region of the network's input, in its own proportions.

    Args:
        image: RGB.
        side: side of the network's square input, in pixels.
        resize: ``crop`` or ``squash``.
        longest: maximum side of the view, in pixels; photos are never enlarged.

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
    """Map a box from pixel coordinates of the photo to those of the network's square.

    Args:
        box: (x0, y0, x1, y1) in the photo, after its EXIF orientation.
        photo_size: (width, height) in pixels.
        side: side of the network's square input, in pixels.
        resize: ``crop`` or ``squash``.

    Returns:
        (x0, y0, x1, y1); a box that was cropped away is outside 0 to ``side``.
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
    """Map a box from pixel coordinates of the network's square to those of the photo.

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
