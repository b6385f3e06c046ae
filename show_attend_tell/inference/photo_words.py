"""Find the words that a person wrote about a photo, inside its file and beside it.

Photo programs agree on no single field: Lightroom and digiKam write XMP and IPTC,
Windows Explorer XPTitle and XPComment, darktable EXIF UserComment, others comments of
JPEG or texts of PNG. A title is words too. Descriptions of cameras are not, see
:mod:`inference.camera_descriptions`.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import IO, NamedTuple

from PIL import ExifTags, ImageFile, IptcImagePlugin

from show_attend_tell.data.photo_faults import UNREADABLE, pillow_faults
from show_attend_tell.data.preprocessing import open_photo, pillow_warnings_ignored
from show_attend_tell.inference.camera_descriptions import is_default
from show_attend_tell.inference.xmp import MAX_BYTES, XmpPacket
from show_attend_tell.runtime.errors import CaptionError
from show_attend_tell.runtime.untrusted import read_text_bytes

_SIDECAR_SUFFIXES = (".xmp", ".XMP", ".Xmp")  # as programs write them

# Object name, headline and caption of IPTC-IIM 4.2.
_IPTC_FIELDS = ((2, 120), (2, 105), (2, 5))
_XP_FIELDS = (ExifTags.Base.XPComment, ExifTags.Base.XPTitle, ExifTags.Base.XPSubject)
_PNG_KEYWORDS = frozenset(["description", "title", "comment", "caption"])

# Formats whose XMP Pillow does not read; it is stored as it is.
_RAW_XMP = frozenset(["GIF", "JPEG2000"])
_END_OF_XMP = b"</x:xmpmeta>"


class Text(NamedTuple):
    """A text of the metadata."""

    words: str
    in_camera_field: bool  # see camera_descriptions.is_default


def sidecar_of(photo: PurePath) -> PurePath:
    """Return the path of a photo's sidecar, ``photo.jpg.xmp``.

    darktable, digiKam and Immich read that name; ``photo.xmp``, which some programs
    use for raw files, would belong to ``photo.jpg`` and ``photo.png`` together.
    """
    return photo.with_name(f"{photo.name}.xmp")


def find_sidecar(photo: Path) -> Path:
    """Return :func:`sidecar_of` a photo, or the file of that name with ``.XMP``."""
    for suffix in _SIDECAR_SUFFIXES:
        path = photo.with_name(photo.name + suffix)
        # A broken link counts too; `read_sidecar` refuses links.
        if path.is_symlink() or path.exists():
            return path
    return Path(sidecar_of(photo))


def words_of_person(photo: Path, sidecar: XmpPacket) -> str:
    """Return words in a photo's sidecar, beside it or inside it, empty for none.

    Args:
        photo: path of the photo.
        sidecar: the packet in :func:`find_sidecar`.
    """
    # Words that replaced a caption are a person's, though they look like a camera's.
    if edited := sidecar.edited():
        return edited
    inside = list(texts_in_photo(photo))
    beside = [text for packet in _packets_beside(photo) for text in _of_xmp(packet)]
    return _first_of_person([*_of_xmp(sidecar), *beside, *inside])


def words_in_photo(photo: Path | IO[bytes]) -> str:
    """Return the words in the file of a photo, empty for none.

    Args:
        photo: path or open binary file.
    """
    return _first_of_person(list(texts_in_photo(photo)))


def _first_of_person(texts: list[Text]) -> str:
    """Return the first text of a person, without those copied from a camera's field."""
    # Programs copy the camera's text into fields in which a person would write.
    by_camera = {
        text.words for text in texts if text.in_camera_field and is_default(*text)
    }
    for text in texts:
        if text.words not in by_camera and not is_default(*text):
            return text.words
    return ""


def _packets_beside(photo: Path) -> Iterator[XmpPacket]:
    """Yield the packets of other sidecars; links are followed, malformed ones left."""
    # Its packet is the argument `sidecar` of the caller.
    own = find_sidecar(photo)
    # photo.jpg.xmp and photo.xmp; the two names are one for a photo without a suffix.
    for stem in dict.fromkeys([photo.name, photo.stem]):
        for suffix in _SIDECAR_SUFFIXES:
            path = photo.with_name(stem + suffix)
            if path != own:
                with contextlib.suppress(CaptionError, OSError):
                    yield XmpPacket(read_text_bytes(path, MAX_BYTES))


def texts_in_photo(photo: Path | IO[bytes]) -> Iterator[Text]:
    """Yield the descriptions and titles in a photo's file.

    Malformed metadata have no texts, and do not hide others.
    """
    readers = (_xmp_texts, _iptc_texts, _exif_texts, _comments, _png_texts)
    with (
        contextlib.suppress(*UNREADABLE),
        pillow_warnings_ignored(),
        open_photo(photo) as image,
    ):
        if image.format == "PNG":  # its texts may follow its pixels
            with contextlib.suppress(*UNREADABLE), pillow_faults():
                image.load()
        for read in readers:
            # Each reader alone, so that one malformed field hides no other.
            with contextlib.suppress(*UNREADABLE):
                for words, in_camera_field in read(image):
                    # Texts of EXIF end in a null byte, and UTF-16 may begin with a byte
                    # order mark.
                    words = words.strip("\0\ufeff \r\n\t")
                    if words:
                        yield Text(words, in_camera_field)


def _of_xmp(packet: XmpPacket) -> Iterator[Text]:
    """Yield the texts of a packet that this package did not write."""
    for words, in_camera_field in packet.texts():
        yield Text(words, in_camera_field)


def _xmp_texts(image: ImageFile.ImageFile) -> Iterator[Text]:
    # Pillow has the packet of a PNG as text, under the keyword of its chunk.
    packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    packet = packet.encode() if isinstance(packet, str) else packet
    if not isinstance(packet, bytes):
        raise ValueError("XMP must be bytes")
    if not packet and image.format in _RAW_XMP:
        packet = _raw_packet(image)
    # A parser of XML refuses null bytes around the document.
    packet = packet.strip(b"\0 \n")
    return _of_xmp(XmpPacket(packet)) if packet else iter(())


def _raw_packet(image: ImageFile.ImageFile) -> bytes:
    """Return the first XMP packet in the bytes of a file, empty if there is none."""
    if image.fp is None:
        return b""
    image.fp.seek(0)
    content = image.fp.read()
    start = content.find(b"<x:xmpmeta")
    end = content.find(_END_OF_XMP)
    return content[start : end + len(_END_OF_XMP)] if 0 <= start < end else b""


def _iptc_texts(image: ImageFile.ImageFile) -> Iterator[Text]:
    with pillow_faults():
        fields = IptcImagePlugin.getiptcinfo(image) or {}
    for field in _IPTC_FIELDS:
        values = fields.get(field, b"")
        # A repeated field of IPTC is a list.
        parts = values if isinstance(values, list) else [values]
        yield Text(b" ".join(parts).decode("utf-8", "replace"), False)


def _exif_texts(image: ImageFile.ImageFile) -> Iterator[Text]:
    with pillow_faults():
        exif = image.getexif()
        # Reading a tag decodes it, so that it may fail too.
        description = exif.get(ExifTags.Base.ImageDescription, "")
    if isinstance(description, str):
        yield Text(description, True)
    with pillow_faults():
        comment = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.UserComment, b"")
    if isinstance(comment, bytes):
        yield Text(_decode_user_comment(comment, exif.endian), True)
    for field in _XP_FIELDS:
        with pillow_faults():
            value = exif.get(field, b"")
            if isinstance(value, tuple):  # of numbers, by some programs
                value = bytes(value)
        if isinstance(value, bytes):
            yield Text(value.decode("utf-16-le", "replace"), False)


def _decode_user_comment(comment: bytes, endian: str | None) -> str:
    """Decode EXIF UserComment: 8 bytes that name the code, then the text."""
    code = comment[:8]
    content = comment[8:]
    if code.startswith(b"UNICODE"):
        # EXIF names no byte order. Some programs use the file's, others always one.
        orders = ("utf-16-be", "utf-16-le")
        texts = [content.decode(order, "replace") for order in orders]
        if endian != ">":
            texts.reverse()
        # The wrong order turns ASCII into other scripts. Of equal ones the first wins,
        # so the byte order of the file comes first.
        return max(texts, key=lambda text: sum(map(str.isascii, text)))
    if code.startswith(b"JIS"):
        return content.decode("iso2022_jp", "replace")
    if not code.startswith(b"ASCII") and code.strip(b"\0 "):
        content = comment  # without the name of a code
    return content.decode("utf-8", "replace")


def _comments(image: ImageFile.ImageFile) -> Iterator[Text]:
    """Yield the comments of a JPEG, which may have several, and of a GIF."""
    # `info` keeps one comment alone; `applist` of a JPEG has all segments.
    comments = [value for name, value in getattr(image, "applist", ()) if name == "COM"]
    for comment in comments or [image.info.get("comment", b"")]:
        if isinstance(comment, bytes):
            yield Text(comment.decode("utf-8", "replace"), False)


def _png_texts(image: ImageFile.ImageFile) -> Iterator[Text]:
    for keyword, value in image.info.items():
        if str(keyword).lower() in _PNG_KEYWORDS and isinstance(value, str):
            yield Text(value, False)
