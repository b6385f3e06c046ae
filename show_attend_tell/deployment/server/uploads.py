"""Decode uploaded photos after validating their size, format and pixel count."""

import io

from PIL import Image
from starlette.exceptions import HTTPException

from show_attend_tell.data.preprocessing import (
    LONGEST_SIDE,
    load_photo,
    pillow_warnings_ignored,
)
from show_attend_tell.runtime.errors import one_line

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
MEGABYTES = 20  # of the largest file
MEGAPIXELS = 50  # width times height, checked in the header before decoding


def open_upload(content: bytes) -> Image.Image:
    """Decode a photo by its content; the file name is ignored.

    Returns:
        RGB, upright according to its EXIF orientation.

    Raises:
        HTTPException: the photo exceeds the limits, or is in none of :data:`FORMATS`.
    """
    if len(content) > MEGABYTES * 1_000_000:
        raise HTTPException(413, size_message())
    try:
        _require_pixels(content)
        return load_photo(io.BytesIO(content), FORMATS)
    except HTTPException:
        raise
    except Exception as error:  # decoders of damaged files raise errors of any class
        reason = "no known image format"
        if not isinstance(error, Image.UnidentifiedImageError):
            reason = one_line(error)
        raise HTTPException(
            415,
            f"`photo` must be a photo ({', '.join(FORMATS)}) that can be read. "
            f"Received: {len(content)} bytes, {reason}; choose another",
        ) from None


def _require_pixels(content: bytes) -> None:
    """Validate the format, the pixel count in the header, and the file's checksums."""
    received = f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000} megapixels"
    try:
        with (
            pillow_warnings_ignored(),
            Image.open(io.BytesIO(content), formats=FORMATS) as image,
        ):
            width, height = image.size
            is_small = width * height <= MEGAPIXELS * 1e6
            if is_small and max(image.size) <= LONGEST_SIDE:
                image.verify()
                return
            received = f"{width} x {height} pixels"
    except Image.DecompressionBombError:
        pass
    raise HTTPException(
        413,
        f"`photo` must have at most {MEGAPIXELS} megapixels, and "
        f"{LONGEST_SIDE} pixels on a side. Received: {received}; make it smaller",
    )


def size_message() -> str:
    """Return the error message for a file that is too large."""
    return f"`photo` must have at most {MEGABYTES} MB. Received: more; make it smaller"
