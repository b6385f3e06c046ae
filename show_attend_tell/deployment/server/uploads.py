"""Decode uploaded photos after validating their size, format and pixel count."""

import io
from collections.abc import Callable

from fastapi import APIRouter, UploadFile
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser

from show_attend_tell.data.photo_faults import UNREADABLE, describe_fault, pillow_faults
from show_attend_tell.data.preprocessing import (
    HAS_AVIF,
    LONGEST_SIDE,
    open_photo,
    pillow_warnings_ignored,
    upright_rgb,
)
from show_attend_tell.deployment.server.avif_sizes import avif_sizes
from show_attend_tell.deployment.server.request_queue import RequestQueue

FORMATS: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
if HAS_AVIF:
    FORMATS += ("AVIF",)
MEGABYTES = 20  # of the largest file
MEGAPIXELS = 50  # width times height, checked in the header before decoding
# Of a picture, its opacity and a preview; each has a size in the container, and one in
# its stream. Tiles may be larger than the picture that they make.
_AVIF_SIZES = 6
# Uploads stay in memory, which `middleware.Guard` limits: temporary files need a folder
# that is neither full nor read-only.
MultiPartParser.spool_max_size = 2**31


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
        # The photo is opened twice: after `verify` Pillow cannot decode a picture.
        _require_pixels(content)
        file = io.BytesIO(content)
        with pillow_warnings_ignored(), open_photo(file, FORMATS) as image:
            return upright_rgb(image)
    except UNREADABLE as error:
        reason = describe_fault(error, content)
        raise HTTPException(
            415,
            f"`photo` must be a photo ({', '.join(FORMATS)}) that can be read. "
            f"Received: {len(content)} bytes, {reason}; choose another",
        ) from None


def photo_router(
    queue: RequestQueue, path: str, answer: Callable[[Image.Image], dict]
) -> APIRouter:
    """Return the router of one service, which takes a photo as the field ``photo``.

    Args:
        queue: the server's queue.
        path: of the service, such as ``/tint``.
        answer: returns the values of a photo, for JSON.
    """
    router = APIRouter()

    @router.post(path)
    async def answer_photo(photo: UploadFile) -> dict:
        content = await photo.read()
        return await queue.run(lambda: answer(open_upload(content)))

    return router


def _require_pixels(content: bytes) -> None:
    """Validate the format, the pixel count in the header, and the file's checksums."""
    # Its header may lie about the size, see avif_sizes; other formats decode what they
    # state.
    if HAS_AVIF and content[4:8] == b"ftyp":
        sizes = avif_sizes(content)
        for width, height in sizes:
            _require_size(width, height)
        # Many pictures within the limit would together take the memory of a large one.
        pixels = sum(width * height for width, height in sizes)
        if pixels > _AVIF_SIZES * MEGAPIXELS * 1e6:
            raise _too_large(f"{len(sizes)} pictures of {pixels} pixels together")
    try:
        with pillow_warnings_ignored():
            with pillow_faults():
                image = Image.open(io.BytesIO(content), formats=FORMATS)
            with image:
                _require_size(*image.size)
                with pillow_faults():
                    image.verify()
    except Image.DecompressionBombError:
        # Pillow warns from its limit on, and raises this error from twice the limit on.
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000
        raise _too_large(f"more than {most} megapixels") from None


def _require_size(width: int, height: int) -> None:
    """Raise an HTTPException if a picture of this size has too many pixels."""
    is_small = width * height <= MEGAPIXELS * 1e6
    if not is_small or max(width, height) > LONGEST_SIDE:
        raise _too_large(f"{width} x {height} pixels")


def _too_large(received: str) -> HTTPException:
    return HTTPException(
        413,
        f"`photo` must have at most {MEGAPIXELS} megapixels, and "
        f"{LONGEST_SIDE} pixels on a side. Received: {received}; make it smaller",
    )


def size_message() -> str:
    """Return the error message for a file that is too large."""
    return f"`photo` must have at most {MEGABYTES} MB. Received: more; make it smaller"
