"""Words of a person: the fields of each program, sidecars, cameras' descriptions."""

import io
import shutil
import struct
import subprocess
import zlib

import pytest
from PIL import Image

from show_attend_tell.inference.camera_descriptions import is_default
from show_attend_tell.inference.metadata import MetadataWriter
from show_attend_tell.inference.photo_words import (
    sidecar_of,
    words_in_photo,
    words_of_person,
)
from show_attend_tell.inference.table import exiftool_table
from show_attend_tell.inference.xmp import XmpPacket

WORDS = "Grandma feeds her sheep"
NAMESPACES = {
    "dc": "http://purl.org/dc/elements/1.1/",
    "exif": "http://ns.adobe.com/exif/1.0/",
    "tiff": "http://ns.adobe.com/tiff/1.0/",
    "photoshop": "http://ns.adobe.com/photoshop/1.0/",
    "Iptc4xmpCore": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
    "xmp": "http://ns.adobe.com/xap/1.0/",
}


def packet(**fields: str) -> bytes:
    """Return a packet with fields such as ``dc_description``."""
    elements = ""
    for name, words in fields.items():
        prefix, _, local = name.partition("_")
        elements += f"<{prefix}:{local}>{words}</{prefix}:{local}>"
    declared = " ".join(f'xmlns:{name}="{uri}"' for name, uri in NAMESPACES.items())
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF '
        'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        f'<rdf:Description rdf:about="" {declared}>{elements}</rdf:Description>'
        "</rdf:RDF></x:xmpmeta>"
    ).encode()


def saved(kind: str = "JPEG", **options) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, kind, **options)
    return buffer.getvalue()


def exif(tag: int, value) -> bytes:
    block = Image.Exif()
    block[tag] = value
    return block.tobytes()


def user_comment(code: bytes, content: bytes) -> bytes:
    return exif(0x8769, {0x9286: code.ljust(8, b"\0") + content})


def iptc(*fields: tuple[int, str]) -> bytes:
    """Return a JPEG with fields of IPTC-IIM, record 2."""
    content = b"".join(
        b"\x1c\x02" + struct.pack(">BH", number, len(words)) + words.encode()
        for number, words in fields
    )
    content += b"\0" * (len(content) % 2)
    block = b"Photoshop 3.0\08BIM\x04\x04\0\0" + struct.pack(">I", len(content))
    block += content
    jpeg = saved()
    return jpeg[:2] + b"\xff\xed" + struct.pack(">H", len(block) + 2) + block + jpeg[2:]


def png_chunk(kind: bytes, content: bytes) -> bytes:
    """Return a PNG with a chunk after its pixels."""
    whole = saved("PNG")
    chunk = struct.pack(">I", len(content)) + kind + content
    chunk += struct.pack(">I", zlib.crc32(kind + content))
    end = whole.rindex(b"IEND") - 4
    return whole[:end] + chunk + whole[end:]


def comments(*texts: bytes) -> bytes:
    """Return a JPEG with several comments."""
    jpeg = saved()
    blocks = b"".join(
        b"\xff\xfe" + struct.pack(">H", len(text) + 2) + text for text in texts
    )
    return jpeg[:2] + blocks + jpeg[2:]


XMP_CHUNK = b"XML:com.adobe.xmp\0\0\0\0\0"
INSIDE = {
    "EXIF ImageDescription": saved(exif=exif(0x010E, WORDS)),
    "EXIF UserComment": saved(exif=user_comment(b"ASCII", WORDS.encode())),
    "UserComment, little": saved(
        exif=user_comment(b"UNICODE", WORDS.encode("utf-16-le"))
    ),
    "UserComment, big": saved(exif=user_comment(b"UNICODE", WORDS.encode("utf-16-be"))),
    "UserComment, no code": saved(exif=user_comment(b"", WORDS.encode())),
    "UserComment, code absent": saved(exif=exif(0x8769, {0x9286: WORDS.encode()})),
    "EXIF XPComment": saved(exif=exif(0x9C9C, WORDS.encode("utf-16-le") + b"\0\0")),
    "EXIF XPTitle": saved(exif=exif(0x9C9B, WORDS.encode("utf-16-le"))),
    "EXIF XPSubject": saved(exif=exif(0x9C9F, WORDS.encode("utf-16-le"))),
    "XMP description": saved(xmp=packet(dc_description=WORDS)),
    "XMP title": saved(xmp=packet(dc_title=WORDS)),
    "XMP headline": saved(xmp=packet(photoshop_Headline=WORDS)),
    "XMP UserComment": saved(xmp=packet(exif_UserComment=WORDS)),
    "XMP ImageDescription": saved(xmp=packet(tiff_ImageDescription=WORDS)),
    "XMP extended description": saved(
        xmp=packet(Iptc4xmpCore_ExtDescrAccessibility=WORDS)
    ),
    "IPTC caption": iptc((5, "DSC_0001"), (120, WORDS)),
    "IPTC title": iptc((5, WORDS)),
    "JPEG comment": saved(comment=WORDS),
    "second JPEG comment": comments(WORDS.encode(), b"Created with GIMP"),
    "GIF comment": saved("GIF", comment=WORDS),
    "PNG description": png_chunk(b"tEXt", b"Description\0" + WORDS.encode()),
    "PNG title": png_chunk(b"tEXt", b"Title\0" + WORDS.encode()),
    "PNG comment, packed": png_chunk(
        b"zTXt", b"Comment\0\0" + zlib.compress(WORDS.encode())
    ),
    "late PNG XMP": png_chunk(b"iTXt", XMP_CHUNK + packet(dc_description=WORDS)),
    "late PNG EXIF": png_chunk(b"eXIf", exif(0x010E, WORDS)[6:]),
    "WebP EXIF": saved("WEBP", exif=exif(0x010E, WORDS)),
    "WebP XMP": saved("WEBP", xmp=packet(dc_description=WORDS)),
    "TIFF description": saved("TIFF", description=WORDS),
}


@pytest.mark.parametrize("content", INSIDE.values(), ids=INSIDE)
def test_words_are_found_in_every_field_that_programs_write(tmp_path, content):
    photo = tmp_path / "photo"
    photo.write_bytes(content)
    assert words_in_photo(photo) == WORDS
    assert words_in_photo(io.BytesIO(content)) == WORDS
    writer = MetadataWriter("m")
    assert writer.write(photo, "a dog") is None
    assert writer.kept == [photo]


@pytest.mark.parametrize(
    "name", ["a.jpg.xmp", "a.jpg.XMP", "a.xmp", "a.XMP", "a.Xmp", "a.jpg.Xmp"]
)
def test_words_are_found_in_sidecars_of_every_name(tmp_path, name):
    photo = tmp_path / "a.jpg"
    photo.write_bytes(saved())
    (tmp_path / name).write_bytes(packet(exif_UserComment=WORDS))
    writer = MetadataWriter("m")
    assert writer.write(photo, "a dog") is None
    assert writer.kept == [photo]
    (tmp_path / name).write_bytes(packet(xmp_Rating="5"))
    assert writer.write(photo, "a dog")
    # A sidecar in capitals gets the caption; no second one appears beside it.
    beside = [path.name for path in tmp_path.iterdir() if path.suffix != ".jpg"]
    assert sorted(beside) == sorted(
        {name, "a.jpg.xmp"} if "jpg" not in name else {name}
    )


def test_words_in_a_linked_sidecar_are_kept(tmp_path):
    photo = tmp_path / "a.jpg"
    photo.write_bytes(saved())
    (tmp_path / "elsewhere").write_bytes(packet(dc_description=WORDS))
    (tmp_path / "a.xmp").symlink_to(tmp_path / "elsewhere")
    assert words_of_person(photo, XmpPacket()) == WORDS


def test_one_malformed_field_hides_no_other(tmp_path):
    content = comments(WORDS.encode())
    broken = b"\xff\xe1\0\x10Exif\0\0MM\0*\xff\xff\xff\xff"
    broken += b"\xff\xe1\0\x21http://ns.adobe.com/xap/1.0/\0<x"
    photo = tmp_path / "a.jpg"
    photo.write_bytes(content[:2] + broken + content[2:])
    assert words_in_photo(photo) == WORDS


BY_CAMERAS = [
    *("OLYMPUS DIGITAL CAMERA", "KODAK Digital Still Camera", "SONY DSC"),
    *("MEDION DIGITAL CAMERA", "MOULTRIE DIGITAL GAME CAMERA", "Exif_JPEG_PICTURE"),
    *("<KENOX S1050  / Samsung S1050>", "DCIM\\100MEDIA\\DJI_0001.JPG", "default"),
    *("C:\\Users\\Jane Doe\\Pictures\\a b.jpg", "/storage/emulated/0/DCIM/1.jpg"),
    *("Created with GIMP", "CREATOR: gd-jpeg v1.0 (using IJG JPEG v62), quality = 82"),
    *("Erstellt mit GIMP", "Captura de tela"),
    *("IMG_20200101_120000", "DSC01234.JPG", "2021:05:18 14:49:23", "oznor", "hdr"),
    *('{"mirror":false,"sensor_type":"front"}', "  \0\0 ", "...", "\1\2\3\4Ab\5\6"),
]


@pytest.mark.parametrize("text", BY_CAMERAS)
def test_descriptions_by_cameras_are_no_words_in_any_field(tmp_path, text):
    assert is_default(text)
    photo = tmp_path / "a.jpg"
    if text.isprintable():
        sidecar_of(photo).write_bytes(
            packet(dc_description=text.replace("<", "&lt;").replace(">", "&gt;"))
        )
    for content in (
        saved(exif=exif(0x010E, text)),
        saved(exif=user_comment(b"ASCII", text.encode())),
        iptc((120, text)),
        comments(text.encode()),
    ):
        photo.write_bytes(content)
        assert words_in_photo(photo) == ""
    assert MetadataWriter("m").write(photo, "a dog")


@pytest.mark.parametrize("text", ["Créé avec GIMP", "Снимок экрана"])
def test_defaults_in_other_scripts_are_no_words(text):
    assert is_default(text)


@pytest.mark.parametrize(
    "text",
    [
        *("Rex", "Venice", "我和奶奶在喂羊", "Rex at the lake", "my digital camera"),
        *("Anna / Rex at the lake", "Picture of the farm", "Hochzeit", "2 dogs"),
        *("Made by hand, from wool", "Christmas 2019, at home", "Created by Anna"),
        "Erstellt mit Gimpel und Spatz",
    ],
)
def test_words_of_a_person_are_not_taken_for_a_cameras(text):
    assert not is_default(text)


def test_a_single_word_counts_where_cameras_write_nothing(tmp_path):
    photo = tmp_path / "a.jpg"
    photo.write_bytes(saved(exif=exif(0x010E, "vivid")))
    assert words_in_photo(photo) == ""  # unknown, but of a camera's shape
    photo.write_bytes(iptc((120, "Rex")))
    assert words_in_photo(photo) == "Rex"
    # A program copied the camera's word into the sidecar.
    photo.write_bytes(saved(exif=exif(0x010E, "vivid")))
    sidecar_of(photo).write_bytes(packet(dc_description="vivid"))
    assert MetadataWriter("m").write(photo, "a dog")


def test_an_edited_caption_is_a_persons_whatever_its_shape(tmp_path):
    photo = tmp_path / "a.jpg"
    photo.write_bytes(saved())
    sidecar = MetadataWriter("m").write(photo, "a dog")
    sidecar.write_text(sidecar.read_text().replace("A dog.</rdf", "rex_1</rdf"))
    writer = MetadataWriter("other")
    assert writer.write(photo, "a cat") is None
    assert writer.kept == [photo]


def test_captions_that_exiftool_wrote_are_renewed_until_a_person_edits_one(tmp_path):
    ours = {"Iptc4xmpCore_AltTextAccessibility": "A dog.", "dc_description": "A dog."}
    tool = {"xmp_CreatorTool": "show-attend-tell, m"}
    photo = tmp_path / "a.jpg"
    photo.write_bytes(saved(xmp=packet(**ours, **tool)))
    assert words_in_photo(photo) == ""
    written = XmpPacket(packet(**ours, **tool))
    assert (written.made_by, written.caption) == ("m", "A dog.")
    for changes in (
        {"dc_description": "Rex."},
        {"Iptc4xmpCore_AltTextAccessibility": "Rex."},
        {"xmp_CreatorTool": "digiKam", "dc_description": "Our dog Rex."},
        {"dc_title": "Rex at the lake"},
    ):
        photo.write_bytes(saved(xmp=packet(**(ours | tool | changes))))
        assert words_in_photo(photo)


def test_exiftool_writes_captions_that_are_ours(tmp_path):
    exiftool = shutil.which("exiftool")
    if exiftool is None:
        pytest.skip("needs exiftool (Debian: libimage-exiftool-perl)")
    kinds = ("JPEG", "PNG", "WEBP", "TIFF")
    photos = [tmp_path / f"a.{kind.lower()}" for kind in kinds]
    for photo, kind in zip(photos, kinds, strict=True):
        photo.write_bytes(saved(kind))
    rows = [{"path": str(p), "caption": "a dog", "made_by": "m"} for p in photos]
    (tmp_path / "o.csv").write_bytes(exiftool_table(rows))
    command = [exiftool, "-q", "-overwrite_original"]
    subprocess.check_call([*command, f"-csv={tmp_path / 'o.csv'}", *photos])
    for photo in photos:
        assert words_in_photo(photo) == ""
        assert MetadataWriter("other").write(photo, "a cat")
    subprocess.check_call([*command, f"-XMP-dc:Description={WORDS}", *photos])
    for photo in photos:
        assert words_in_photo(photo) == WORDS
