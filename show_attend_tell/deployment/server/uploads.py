"""Decode uploaded photos after validating their size, format and pixel count."""

import io
from dataclasses import dataclass

from PIL import Image

from show_attend_tell.data.preprocessing import UNREADABLE, load_photo
from show_attend_tell.runtime.errors import PhotoError, UploadError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


@dataclass(frozen=True)
class Limits:
    """Limits of an upload.

    Attributes:
        megabytes: size of the file.
        megapixels: width times height, checked in the header before decoding.
    """

    megabytes: int = 20
    megapixels: int = 50

    @property
    def bytes(self) -> int:
        """Size of the largest file in bytes."""
        return self.megabytes * 1_000_000


def open_upload(content: bytes, limits: Limits) -> Image.Image:
    """Decode a photo by its content; the file name is ignored.

    Returns:
        RGB, upright according to its EXIF orientation.

    Raises:
        UploadError: the photo exceeds the limits, or is in none of :data:`FORMATS`.
    """
    if len(content) > limits.bytes:
        raise UploadError(413, size_message(limits))
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > limits.megapixels * 1e6:
                raise UploadError(
                    413,
                    f"`photo` must have at most {limits.megapixels} megapixels. "
                    f"Received: {width} x {height} pixels; make it smaller",
                )
            image.verify()
        return load_photo(io.BytesIO(content))
    except UploadError:
        raise
    except (*UNREADABLE, PhotoError) as error:
        reason = "no known image format"
        if not isinstance(error, Image.UnidentifiedImageError):
            reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UploadError(
            415,
            f"`photo` must be a photo ({', '.join(FORMATS)}) that can be read. "
            f"Received: {len(content)} bytes, {reason}; choose another",
        ) from None


def size_message(limits: Limits) -> str:
    """Return the error message for a file that is too large."""
    return (
        f"`photo` must have at most {limits.megabytes} MB. Received: more; make it "
        "smaller"
    )
