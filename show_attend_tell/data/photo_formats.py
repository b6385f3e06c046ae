"""List the formats of photos that are decoded, and the remedy for others.

HEIC is decoded if the package pillow-heif is installed, which the extra ``[heic]``
requires.
"""

import contextlib
import os

from PIL import features

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
    | dict.fromkeys(_RAW, "raw photos cannot be read; export it as JPEG")
)


def remedy(path: str | os.PathLike) -> str:
    """Return why a photo cannot be decoded and what to do, empty for other files."""
    suffix = _suffix(path)
    return "" if suffix in PHOTO_SUFFIXES else _REMEDIES.get(suffix, "")


def is_raw(path: str | os.PathLike) -> bool:
    """Return whether a file has a suffix of raw photos."""
    return _suffix(path) in _RAW


def is_photo(path: str | os.PathLike) -> bool:
    """Return whether a file has one of :data:`PHOTO_SUFFIXES`."""
    return _suffix(path) in PHOTO_SUFFIXES


def _suffix(path: str | os.PathLike) -> str:
    return os.path.splitext(path)[1].lower()
