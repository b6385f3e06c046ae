"""Find the words that a person, or another program, has written about a photo."""

from pathlib import Path

from PIL import ExifTags, Image, IptcImagePlugin

from show_attend_tell.data.preprocessing import (
    UNREADABLE,
    open_photo,
    pillow_warnings_ignored,
)
from show_attend_tell.inference.metadata.xmp import MAX_BYTES, XmpPacket
from show_attend_tell.runtime.errors import MetadataError
from show_attend_tell.runtime.regular_files import read_text_bytes

_CAPTION_ABSTRACT = (2, 120)  # IPTC-IIM 4.2

# Formats whose XMP Pillow does not read; it is stored as it is.
_RAW_XMP = frozenset(["GIF", "JPEG2000"])
_END_OF_XMP = b"</x:xmpmeta>"

# Cameras write these into ImageDescription of every photo.
_CAMERA_DEFAULTS = frozenset(
    [
        "default",
        "exif_jpeg_picture",
        "konica minolta digital camera",
        "minolta digital camera",
        "olympus digital camera",
        "samsung digital camera",
        "sony dsc",
    ]
)


def sidecar_of(photo: Path) -> Path:
    """Return the path of a photo's sidecar, ``photo.jpg.xmp``.

    darktable, digiKam and Immich read that name; ``photo.xmp``, which some programs
    use for raw files, would belong to ``photo.jpg`` and ``photo.png`` together.
    """
    return photo.with_name(f"{photo.name}.xmp")


def read_sidecar(path: Path) -> bytes | None:
    """Return the content of a sidecar, None if it is absent.

    Raises:
        MetadataError: the sidecar is a link, not a regular file, or too large.
        OSError: the sidecar cannot be read.
    """
    if path.is_symlink():
        raise MetadataError("is a link, which is not replaced")
    if not path.exists():
        return None
    try:
        return read_text_bytes(path, MAX_BYTES)
    except OSError as error:
        raise MetadataError(error.strerror or str(error)) from None


def words_in_sidecars(photo: Path) -> str:
    """Return the words in the sidecars ``photo.jpg.xmp`` and ``photo.xmp``.

    Raises:
        MetadataError: the first of them cannot be read.
    """
    content = read_sidecar(sidecar_of(photo))
    return XmpPacket(content).words() or _words(photo.with_suffix(".xmp"))


def _words(sidecar: Path) -> str:
    """Return the words of a sidecar that another program made, empty if malformed."""
    try:
        return XmpPacket(read_sidecar(sidecar)).words()
    except (MetadataError, OSError):
        return ""


def words_in_photo(photo: Path) -> str:
    """Return the words in the file of a photo: XMP, IPTC-IIM, EXIF ImageDescription.

    Metadata that are malformed have no words.
    """
    try:
        with pillow_warnings_ignored(), open_photo(photo) as image:
            return _xmp_words(image, photo) or _iptc_words(image) or _exif_words(image)
    except UNREADABLE:
        return ""


def _xmp_words(image: Image.Image, photo: Path) -> str:
    packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    packet = packet.encode() if isinstance(packet, str) else packet
    if not packet and image.format in _RAW_XMP:
        packet = _raw_packet(photo)
    try:
        return XmpPacket(packet.strip(b"\0 \n")).words()
    except MetadataError:
        return ""


def _raw_packet(photo: Path) -> bytes:
    """Return the first XMP packet in the bytes of a file, empty if there is none."""
    content = read_text_bytes(photo)
    start, end = content.find(b"<x:xmpmeta"), content.find(_END_OF_XMP)
    return content[start : end + len(_END_OF_XMP)] if 0 <= start < end else b""


def _iptc_words(image: Image.Image) -> str:
    try:
        found = (IptcImagePlugin.getiptcinfo(image) or {}).get(_CAPTION_ABSTRACT, b"")
    except UNREADABLE:
        return ""
    parts = found if isinstance(found, list) else [found]
    return b" ".join(parts).decode("utf-8", "replace").strip("\0 ")


def _exif_words(image: Image.Image) -> str:
    found = image.getexif().get(ExifTags.Base.ImageDescription, "")
    words = found.strip("\0 \r\n") if isinstance(found, str) else ""
    return "" if words.lower() in _CAMERA_DEFAULTS else words
