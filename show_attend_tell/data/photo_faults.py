"""Say in words for a person why a photo cannot be decoded, and how much is missing.

Copies that are interrupted and damaged memory cards leave files that end early. A JPEG
and a PNG are decoded as far as they go, to name the part of the picture that is lost;
other formats state the size of their file.
"""

import contextlib
import io
import re
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

from show_attend_tell.runtime.errors import one_line

_ENDS_EARLY = re.compile(
    "truncated|broken data stream|broken png|decoder object|end of file"
)
_BOMB = re.compile(r"\((\d+) pixels\) exceeds limit of (\d+)")
_END_OF_JPEG = b"\xff\xd9"
# libjpeg fills in what is missing
_GREY = 128
_TOLERANCE = 2
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_PNG_HEADER = 8
_PIECE = 1 << 20  # bytes unpacked at a time
_REMEDY = "copy it again from its source"

# What is raised for a photo that cannot be decoded, see :func:`pillow_faults`.
UNREADABLE = (OSError, ValueError, MemoryError, Image.DecompressionBombError)


@contextlib.contextmanager
def pillow_faults() -> Iterator[None]:
    """Raise an error of :data:`UNREADABLE` for what Pillow raises for a damaged file.

    Call only Pillow in the body: its decoders raise errors of any class, and a mistake
    of this package must not be taken for damage.
    """
    try:
        yield
    except UNREADABLE:
        raise
    except Exception as fault:
        raise ValueError(one_line(fault)) from fault


def describe_fault(error: Exception, content: bytes | None) -> str:
    """Return why a photo cannot be decoded, and the remedy.

    Args:
        error: the error of Pillow.
        content: the bytes of the file, None if they cannot be read.
    """
    if isinstance(error, Image.DecompressionBombError):
        return _describe_size(error)
    if content is None:
        return one_line(error)
    if not content:
        return f"the file is empty; {_REMEDY}"
    if not content.strip(b"\0"):
        return "the file holds nothing but zeros; restore it from a backup"
    is_unknown = isinstance(error, Image.UnidentifiedImageError)
    ends_early = _ENDS_EARLY.search(str(error).lower()) is not None
    # A photo that was refused as too costly is not decoded here either.
    share = _missing_share(content) if is_unknown or ends_early else ""
    if share:
        return f"the file ends early, {share} is missing; {_REMEDY}"
    if ends_early:
        return f"the file ends early or is damaged; {_REMEDY}"
    if is_unknown:
        # TIFF of either byte order
        if content[:4] in (b"II*\0", b"MM\0*"):
            return "a TIFF of an unknown kind; export it with 8 or 16 bits per level"
        return "unknown image format"
    return one_line(error)


def _describe_size(error: Exception) -> str:
    """Return the pixels of a picture that Pillow refuses, and its limit."""
    found = _BOMB.search(str(error))
    if found is None:
        return "it has too many pixels; save a smaller copy"
    # Pillow warns at a limit, and refuses above twice that.
    pixels, limit = (int(number) / 1e6 for number in found.groups())
    return (
        f"it has {pixels:,.0f} megapixels, and at most {limit:,.0f} are read; save a "
        "smaller copy"
    )


def _missing_share(content: bytes) -> str:
    """Return the part of a photo that is missing, empty if it is unknown or none."""
    if content.startswith(b"\xff\xd8"):
        share = _missing_rows_of_jpeg(content)
        return "" if share is None else f"the lower {share:.0%} of the picture"
    if content.startswith(b"\x89PNG"):
        share = _missing_rows_of_png(content)
        return "" if share is None else f"the lower {share:.0%} of the picture"
    size = _stated_size(content)
    if size is None or size <= len(content):
        return ""
    return f"{1 - len(content) / size:.0%} of it"


def _missing_rows_of_jpeg(content: bytes) -> float | None:
    """Return the share of the rows that libjpeg fills in at the bottom, None for none.

    A progressive JPEG lacks details everywhere instead.
    """
    # With an end marker libjpeg returns what there is; without it Pillow raises an
    # error when the data end.
    whole_file = io.BytesIO(content + _END_OF_JPEG)
    try:
        with pillow_faults(), Image.open(whole_file, formats=["JPEG"]) as image:
            # At an eighth of the size libjpeg only computes the mean of each block of
            # 8 x 8 pixels.
            image.draft(None, (image.width // 8, image.height // 8))
            rows = np.asarray(image, np.int16).reshape(image.height, -1)
    except UNREADABLE:  # the file is damaged otherwise
        return None
    is_filled = np.abs(rows - _GREY).max(axis=1) <= _TOLERANCE  # (H, W ...) -> (H,)
    whole_rows = np.flatnonzero(~is_filled)
    whole = whole_rows[-1] + 1 if len(whole_rows) else 0
    return None if whole == len(rows) else 1 - whole / len(rows)


def _missing_rows_of_png(content: bytes) -> float | None:
    """Return the share of the rows of a PNG that are absent, None if it is unknown."""
    unpacked = 0
    expected = None
    unpack = zlib.decompressobj()
    try:
        for kind, chunk in _png_chunks(content):
            if kind == b"IHDR":
                width, height, bits, colour, _, _, interlaced = struct.unpack(
                    ">IIBBBBB", chunk[:13]
                )
                # A byte for the filter, then the pixels, rounded up to bytes
                row = 1 + (width * bits * _PNG_CHANNELS[colour] + 7) // 8
                # Rows of an interlaced PNG are spread over seven passes: unknown.
                expected = 0 if interlaced else row * height
            elif kind == b"IDAT":
                # Pieces bound the memory: a short chunk may unpack to gigabytes.
                while chunk and unpacked < (expected or 0):
                    unpacked += len(unpack.decompress(chunk, _PIECE))
                    chunk = unpack.unconsumed_tail
    except (zlib.error, struct.error, KeyError):
        return None
    if not expected or unpacked >= expected:
        return None
    return 1 - unpacked / expected


def _png_chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and the data of each chunk; the last may be cut."""
    position = _PNG_HEADER
    while position + 8 <= len(content):
        (size,) = struct.unpack_from(">I", content, position)
        kind = content[position + 4 : position + 8]
        yield kind, content[position + 8 : position + 8 + size]
        # Length, kind and checksum have 4 bytes each.
        position += size + 12


def _stated_size(content: bytes) -> int | None:
    """Return the size in bytes that a WebP, BMP, HEIC or AVIF states, or None."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        # RIFF does not count its first 8 bytes.
        return int.from_bytes(content[4:8], "little") + 8
    if content.startswith(b"BM") and len(content) > 6:
        return int.from_bytes(content[2:6], "little")
    if content[4:8] != b"ftyp":
        return None
    # HEIC and AVIF are a sequence of boxes, each with its size first.
    position = 0
    while position + 8 <= len(content):
        (size,) = struct.unpack_from(">I", content, position)
        if size < 8:  # to the end of the file, or in 64 bits
            return None
        position += size
    return position
