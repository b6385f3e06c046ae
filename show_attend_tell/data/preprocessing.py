"""Decode photos, resize them for the encoder, and map boxes between the two.

Extraction, captioning and figures all use :func:`load_photo` and :func:`to_square`, so
that training and inference have the same pixels. HEIC is decoded if the package
pillow-heif is installed, which the extra ``[heic]`` requires.
"""

import contextlib
import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np
from PIL import Image, ImageFile, ImageOps, TiffImagePlugin, features

from show_attend_tell.data.photo_faults import (
    UNREADABLE,
    describe_fault,
    pillow_faults,
)
from show_attend_tell.runtime.errors import PhotoError
from show_attend_tell.runtime.untrusted import read_text_bytes, require_regular

Box = tuple[float, float, float, float]

_HEIC = (".heic", ".heif")
_RAW = tuple(
    ".3fr .arw .cr2 .cr3 .crw .dng .nef .nrw .orf .pef .raf .raw .rw2 .srw .x3f".split()
)


def _register_heic() -> bool:
    """Let Pillow decode HEIC; return whether pillow-heif is installed."""
    with contextlib.suppress(ImportError, OSError):  # OSError: a library is absent
        import pillow_heif

        pillow_heif.register_heif_opener()
        return True
    return False


HAS_HEIC = _register_heic()
HAS_AVIF = bool(features.check("avif"))  # since Pillow 11.3, if built with libavif

# Formats that Pillow decodes without another program; EPS, for instance, would start
# Ghostscript. JPEG includes MPO.
PHOTO_FORMATS = (
    *("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "PPM"),
    *(("AVIF",) if HAS_AVIF else ()),
    *(("HEIF",) if HAS_HEIC else ()),
)

# Files of a folder with these suffixes, in lower case, are photos.
PHOTO_SUFFIXES = frozenset(
    [
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif"),
        *(".tif", ".tiff", ".jp2", ".ppm", ".pgm"),
        *((".avif",) if HAS_AVIF else ()),
        *(_HEIC if HAS_HEIC else ()),
    ]
)

_RAW_REMEDY = "raw photos cannot be read; export it as JPEG"

# Photos that cannot be decoded, by suffix, with the remedy.
_REMEDIES = (
    dict.fromkeys(
        _HEIC,
        "HEIC cannot be read; run pip install 'show-attend-tell[heic]', or convert it "
        "to JPEG",
    )
    | {
        ".avif": "AVIF cannot be read; run pip install --upgrade pillow",
        ".jxl": "JPEG XL cannot be read; convert it to JPEG",
    }
    | dict.fromkeys(_RAW, _RAW_REMEDY)
)

# Pixels; Pillow scales one axis of the whole photo first.
LONGEST_SIDE = 65_535
_MOST_SCANS = 100  # a progressive JPEG has about 10

# A path keeps one of two slashes.
_URL = re.compile("(?:https?|ftp|file|s3|gs):/|data:", re.IGNORECASE)

_lock = threading.Lock()
_pillow = logging.getLogger("PIL")
_active = 0  # threads that are decoding
_restore = contextlib.ExitStack()


def remedy(path: str | os.PathLike[str]) -> str:
    """Return why a photo cannot be decoded and what to do, empty for other files."""
    suffix = _suffix(path)
    return "" if suffix in PHOTO_SUFFIXES else _REMEDIES.get(suffix, "")


def is_raw(path: str | os.PathLike[str]) -> bool:
    """Return whether a file has a suffix of raw photos."""
    return _suffix(path) in _RAW


def is_photo(path: str | os.PathLike[str]) -> bool:
    """Return whether a file has one of :data:`PHOTO_SUFFIXES`."""
    return _suffix(path) in PHOTO_SUFFIXES


def has_suffix(path: str | os.PathLike[str]) -> bool:
    """Return whether a file's name ends with a kind of file; a date is none."""
    return bool(_suffix(path))


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = os.path.splitext(path)[1].lower()
    kind = suffix[1:]
    # Neither "12.05.2024" nor "St. Mary" ends in a suffix.
    return suffix if kind and not kind.isdigit() and " " not in kind else ""


def has_photo_content(path: str | os.PathLike[str]) -> bool:
    """Return whether the content of a file begins as a photo that can be decoded."""
    try:
        with pillow_warnings_ignored(), open_photo(path):
            return True
    except UNREADABLE:
        return False


@contextlib.contextmanager
def pillow_warnings_ignored() -> Iterator[None]:
    """Ignore what Pillow reports in the body other than by an error.

    Filters and levels belong to the process, not to a thread: the first of several
    threads changes them, and the last restores them.
    """
    global _active
    with _lock:
        if not _active:
            _restore.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module=r"PIL\.")
            _restore.callback(_pillow.setLevel, _pillow.level)
            _pillow.setLevel(logging.CRITICAL + 1)
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active:
                _restore.close()


# White of pictures whose levels have more than 8 bits and an unknown scale: the first
# that their largest level does not exceed.
_WHITES = {"F": (1.0, 255.0, 65_535.0), "I": (255.0, 65_535.0, 2.0**31 - 1)}
_OVERSHOOT = 1.1  # a resized picture may exceed its white by as much


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert a picture to RGB with 8 bits; transparency becomes white."""
    if image.mode[0] in "IF":
        image = _to_eight_bits(image)
    with pillow_faults():
        # Not by convert, which would drop alpha and show the hidden colours.
        if image.has_transparency_data:
            image = image.convert("RGBA")
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image)
        return image.convert("RGB")


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Scale a grey picture of 16-bit, 32-bit or floating-point levels to 8 bits.

    Floating-point levels usually reach from 0 to 1, and some programs store levels of
    8 bits as 32-bit numbers. NaN becomes black.

    Raises:
        ValueError: the levels have no known scale.
    """
    levels = np.asarray(image, np.float64)
    if image.mode.startswith("I;16"):
        white = 65_535.0
    else:
        # Infinities stay, and so exceed every scale.
        levels = np.nan_to_num(levels, posinf=np.inf, neginf=-np.inf)
        largest = np.abs(levels).max(initial=0)
        whites = [x for x in _WHITES[image.mode] if largest <= x * _OVERSHOOT]
        if not whites:
            raise ValueError(
                f"its levels reach {largest:g}, of no known scale; export it with 8 or "
                "16 bits"
            )
        white = whites[0]
    grey = np.clip(levels / white, 0, 1) * 255
    return Image.fromarray(np.rint(grey).astype(np.uint8))


def upright_rgb(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation of an opened picture and convert it to RGB.

    The orientation is ignored if the EXIF data are malformed.

    Raises:
        UNREADABLE: the picture cannot be decoded.
    """
    with pillow_faults():
        image.load()  # before EXIF is read: errors of the pixels are not ignored
    # `pillow_faults` is inside, so that what it raises is suppressed.
    with contextlib.suppress(*UNREADABLE), pillow_faults():
        image = ImageOps.exif_transpose(image)
    if 0 in image.size:
        raise ValueError("it has no pixels")
    return _to_rgb(image)


def open_photo(
    file: str | os.PathLike[str] | IO[bytes], formats: Sequence[str] = PHOTO_FORMATS
) -> ImageFile.ImageFile:
    """Open a photo without decoding its pixels; arguments as of :func:`load_photo`.

    Raises:
        UNREADABLE: the file is absent, not a regular file, not a photo, or takes too
            much memory or time to decode for its size.
    """
    if isinstance(file, str | os.PathLike):
        require_regular(file)
    with pillow_faults():
        image = Image.open(file, formats=tuple(formats))
    if _has_raw_content(image):
        fault = _RAW_REMEDY
    elif max(image.size) > LONGEST_SIDE:
        fault = f"a side must have at most {LONGEST_SIDE} pixels"
    elif (scans := _scans(image)) > _MOST_SCANS:
        fault = f"a JPEG must have at most {_MOST_SCANS} scans. Received: {scans}"
    else:
        return image
    image.close()
    raise ValueError(fault)


# Tags of TIFF, and values of raw photos. Their first picture is often a thumbnail.
_DNG_VERSION = 50_706
_PHOTOMETRIC = 262
_SENSOR_LEVELS = (32_803, 34_892)  # of a colour filter array; linear raw
_SUBFILE_TYPE = 254
_REDUCED = 1
_SUB_IFDS = 330
_CANON_RAW = b"CR"  # after the header of 8 bytes


def _has_raw_content(image: Image.Image) -> bool:
    """Return whether an opened TIFF is a raw photo: DNG, CR2, NEF, ARW and others."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile) or image.fp is None:
        return False
    tags = image.tag_v2
    place = image.fp.tell()
    image.fp.seek(8)
    is_canon = image.fp.read(2) == _CANON_RAW
    image.fp.seek(place)
    with pillow_faults():  # a tag is decoded when it is read
        is_thumbnail = _SUB_IFDS in tags and tags.get(_SUBFILE_TYPE) == _REDUCED
        levels = tags.get(_PHOTOMETRIC)
    is_sensor = _DNG_VERSION in tags or levels in _SENSOR_LEVELS
    return is_canon or is_thumbnail or is_sensor


# A byte FF, then the kind of a marker. Compressed data have FF only before 00 and
# before the restart markers D0 to D7.
_MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
_START_OF_IMAGE = 0xD8
_END_OF_IMAGE = 0xD9
_START_OF_SCAN = 0xDA
_FIRST_WITH_LENGTH = 0xC0  # libjpeg skips markers below it without their content


def _scans(image: ImageFile.ImageFile) -> int:
    """Count the scans of an opened JPEG, each of which may change every pixel.

    Phones append a video to a photo and cameras a second picture, and a segment of
    metadata may hold a thumbnail: any of these may contain the bytes of a marker. The
    markers are therefore followed from segment to segment, up to the picture's end.
    """
    if image.format not in ("JPEG", "MPO") or image.fp is None:
        return 0
    place = image.fp.tell()
    image.fp.seek(0)
    content = image.fp.read()
    image.fp.seek(place)

    count = 0
    position = 0
    while marker := _MARKER.search(content, position):
        kind = marker[1][0]
        position = marker.end()
        if kind == _END_OF_IMAGE:
            break
        if kind == _START_OF_SCAN:
            count += 1
        if kind >= _FIRST_WITH_LENGTH and kind != _START_OF_IMAGE:
            # The length counts its own two bytes.
            position += int.from_bytes(content[position : position + 2], "big")
    return count


def load_photo(
    file: str | os.PathLike[str] | IO[bytes],
    formats: Sequence[str] = PHOTO_FORMATS,
    name: str | None = None,
) -> Image.Image:
    """Decode a photo to RGB and apply its EXIF orientation.

    Args:
        file: path or open binary file; the first frame of an animation is used.
        formats: Pillow's names of the formats that may be decoded, at most
            :data:`PHOTO_FORMATS`.
        name: name of the photo in errors, by default that of the file.

    Raises:
        PhotoError: the file is absent, not a regular file, or cannot be decoded.
    """
    if name is None and isinstance(file, str | os.PathLike):
        name = os.fspath(file)
    elif name is None:
        name = str(getattr(file, "name", "photo"))
    try:
        with pillow_warnings_ignored(), open_photo(file, formats) as image:
            return upright_rgb(image)
    except FileNotFoundError:
        if _URL.match(name):
            raise PhotoError(
                f"{name}: a URL, and nothing is fetched from the internet; download "
                "the photo and name its file"
            ) from None
        raise PhotoError(f"{name}: no such photo") from None
    except UNREADABLE as error:
        reason = ""
        if isinstance(error, Image.UnidentifiedImageError):
            reason = remedy(name)
        elif str(error) == _RAW_REMEDY:
            reason = _RAW_REMEDY
        if not reason:
            fault = describe_fault(error, _content_of(file))
            reason = f"cannot be read as a photo: {fault}"
        raise PhotoError(f"{name}: {reason}") from None


def _content_of(file: str | os.PathLike[str] | IO[bytes]) -> bytes | None:
    """Return the bytes of a photo, None if they cannot be read."""
    try:
        if isinstance(file, str | os.PathLike):
            return read_text_bytes(file)
        file.seek(0)
        return file.read()
    except UNREADABLE:
        return None


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
    # The scaled photo has whole pixels, and the crop begins at one of them.
    shortest = round(side * 8 / 7)
    scale = shortest / min(width, height)
    wide = round(width * scale)
    high = round(height * scale)
    left = (wide - side) // 2
    top = (high - side) // 2
    # photo pixels in a scaled pixel
    across = width / wide
    down = height / high
    right = min((left + side) * across, width)  # rounding must not exceed it
    bottom = min((top + side) * down, height)
    return left * across, top * down, right, bottom


def to_square(image: Image.Image, side: int, resize: str) -> np.ndarray:
    """Resize a photo, RGB, bicubic, to :func:`seen_region`; (side, side, 3) uint8.

    The result equals scaling the whole photo and then cropping, but only the crop is
    computed, so that a very long photo costs no more than others.
    """
    region = seen_region(image.size, side, resize)
    square = image.resize((side, side), Image.Resampling.BICUBIC, box=region)
    return np.asarray(square, np.uint8)


def to_view(image: Image.Image, side: int, resize: str, longest: int) -> np.ndarray:
    """Crop a photo, RGB, to :func:`seen_region` in its own proportions.

    The result, (H, W, 3) uint8, is never enlarged; its sides have at most `longest`
    pixels.
    """
    region = seen_region(image.size, side, resize)
    width = region[2] - region[0]
    height = region[3] - region[1]
    scale = min(1.0, longest / max(width, height))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    view = image.resize(size, Image.Resampling.BICUBIC, box=region)
    return np.asarray(view, np.uint8)


def box_to_square(box: Box, photo_size: tuple[int, int], side: int, resize: str) -> Box:
    """Map a box from the photo's pixel coordinates to :func:`seen_region`'s square.

    A box (x0, y0, x1, y1) that was cropped away is outside 0 to ``side``.
    """
    left, top, right, bottom = seen_region(photo_size, side, resize)
    across = side / (right - left)
    down = side / (bottom - top)
    x0, y0, x1, y1 = box
    return (
        (x0 - left) * across,
        (y0 - top) * down,
        (x1 - left) * across,
        (y1 - top) * down,
    )
