"""Photos that strangers send: their size, their type and their pixels are checked."""

import io
from dataclasses import dataclass

from PIL import Image

from show_attend_tell.data.preprocessing import UNREADABLE, load_photo
from show_attend_tell.runtime.errors import PhotoError, UploadError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


@dataclass(frozen=True)
class Limits:
    """What is accepted.

    Attributes:
        megabytes: of the file.
        megapixels: width times height, read from the header before anything else is.
    """

    megabytes: int = 20
    megapixels: int = 50

    @property
    def bytes(self) -> int:
        """The largest file."""
        return self.megabytes * 1_000_000


def open_upload(content: bytes, limits: Limits) -> Image.Image:
    """Decode a photo by its content, whatever its name says, if it keeps the limits.

    Returns:
        RGB, turned as its EXIF orientation says.

    Raises:
        UploadError: it is too large, or no photo of :data:`FORMATS`.
    """
    if len(content) > limits.bytes:
        raise UploadError(413, too_large(limits))
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
        reason = "no image format that is known"
        if not isinstance(error, Image.UnidentifiedImageError):
            reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UploadError(
            415,
            f"`photo` must be a photo ({', '.join(FORMATS)}) that can be read. "
            f"Received: {len(content)} bytes, {reason}; choose another",
        ) from None


def too_large(limits: Limits) -> str:
    """Say that a file is too large."""
    return (
        f"`photo` must have at most {limits.megabytes} MB. Received: more; make it "
        "smaller"
    )
