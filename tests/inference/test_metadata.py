"""Sidecars: names, words of a person, hostile files, interruptions, exiftool."""

import csv
import json
import os
import shutil
import subprocess

import pytest
from PIL import Image, IptcImagePlugin

from show_attend_tell.inference.metadata import (
    MetadataWriter,
    sidecar_of,
    words_in_photo,
)
from show_attend_tell.inference.table import exiftool_table
from show_attend_tell.inference.xmp import MAX_BYTES, XmpPacket

MADE_BY = "flickr8k.safetensors 0123456789ab, beam 5"
PERSON = """<x:xmpmeta xmlns:x="adobe:ns:meta/">
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xmp="http://ns.adobe.com/xap/1.0/">
<rdf:Description rdf:about="" xmp:Rating="5"><dc:description><rdf:Alt>
<rdf:li xml:lang="x-default">Rex at the lake</rdf:li></rdf:Alt></dc:description>
</rdf:Description></rdf:RDF></x:xmpmeta>"""


@pytest.fixture
def jpeg(tmp_path):
    path = tmp_path / "a photo.jpg"
    Image.new("RGB", (8, 8)).save(path)
    return path


@pytest.fixture
def writer():
    return MetadataWriter(MADE_BY)


def counts(writer):
    return writer.written, writer.present, len(writer.kept), len(writer.failures)


def test_the_same_caption_is_written_once_and_another_model_renews_it(jpeg, writer):
    assert writer.write(jpeg, "a dog", 0.75) == sidecar_of(jpeg)
    before = sidecar_of(jpeg).stat().st_ino
    assert writer.write(jpeg, "a dog") is None
    assert sidecar_of(jpeg).stat().st_ino == before
    assert counts(writer) == (1, 1, 0, 0)
    packet = writer.find_packet(jpeg)
    assert (packet.caption, packet.confidence) == ("A dog.", 0.75)
    other = MetadataWriter("other model")
    assert other.find_packet(jpeg) is None
    other.write(jpeg, "a cat")
    packet = other.find_packet(jpeg)
    assert (packet.caption, packet.confidence) == ("A cat.", None)


def test_a_photo_that_was_replaced_gets_a_new_caption(jpeg, writer):
    writer.write(jpeg, "a dog", 0.75)
    later = sidecar_of(jpeg).stat().st_mtime_ns + 10**9
    os.utime(jpeg, ns=(later, later))  # touched alone
    assert writer.find_packet(jpeg)
    content = bytearray(jpeg.read_bytes())
    content[-3] ^= 1  # another photo of the same size
    for replaced in (bytes(content), jpeg.read_bytes() + b"larger"):
        jpeg.write_bytes(replaced)
        os.utime(jpeg, ns=(later, later))
        assert writer.find_packet(jpeg) is None
        assert writer.write(jpeg, "a dog", 0.75)
        assert writer.find_packet(jpeg).caption == "A dog."


def test_a_photo_that_is_gone_gets_no_sidecar_and_no_folder(tmp_path, writer):
    photo = tmp_path / "drive" / "a.jpg"
    assert writer.write(photo, "a dog", 0.75) is None
    (failure,) = writer.failures
    assert failure.reason == f"{photo}: metadata not written: No such file or directory"
    assert not list(tmp_path.iterdir())


def test_an_older_photo_of_the_same_size_gets_a_new_caption(tmp_path, writer):
    photo = tmp_path / "a.bmp"
    other = tmp_path / "b.bmp"
    Image.new("RGB", (8, 8), "red").save(photo)
    Image.new("RGB", (8, 8), "blue").save(other)
    os.utime(other, ns=(1, 1))
    writer.write(photo, "a red square", 0.9)
    assert writer.find_packet(photo)
    other.rename(photo)
    assert writer.find_packet(photo) is None
    assert writer.write(photo, "a red square", 0.9)
    assert writer.find_packet(photo)


def test_a_sidecar_of_an_earlier_version_without_the_photos_time_is_known(jpeg, writer):
    writer.write(jpeg, "a dog", 0.75)
    sidecar = sidecar_of(jpeg)
    modified = f" {jpeg.stat().st_mtime_ns}<"
    content = sidecar.read_text()
    assert content.count(modified) == 1
    sidecar.write_text(content.replace(modified, "<"))
    assert writer.find_packet(jpeg)
    later = sidecar.stat().st_mtime_ns + 10**9
    os.utime(jpeg, ns=(later, later))
    assert writer.find_packet(jpeg)
    writer.write_none(jpeg)
    assert writer.removed == 0
    replace(jpeg)
    assert writer.find_packet(jpeg) is None
    writer.write_none(jpeg)
    assert writer.removed == 1


def replace(jpeg):
    jpeg.write_bytes(jpeg.read_bytes() + b"another")


def without_caption(writer, jpeg):
    """The ways in which a photo gets no caption."""
    return {
        "low": lambda: writer.write(jpeg, "a cat", 0.02, ["cat"]),
        "empty": lambda: writer.write(jpeg, ""),
        "failed": lambda: writer.write_none(jpeg),
    }


@pytest.mark.parametrize("way", ["low", "empty", "failed"])
def test_a_photo_that_was_replaced_loses_the_caption_of_the_earlier_one(
    jpeg, writer, way
):
    start, end = PERSON.index("<dc:description>"), PERSON.index("</rdf:Description>")
    sidecar_of(jpeg).write_text(PERSON[:start] + PERSON[end:])
    writer.write(jpeg, "a dog", 0.75, ["dog"])
    before = sidecar_of(jpeg).read_text()
    without_caption(writer, jpeg)[way]()
    assert sidecar_of(jpeg).read_text() == before
    replace(jpeg)
    without_caption(writer, jpeg)[way]()
    content = sidecar_of(jpeg).read_text()
    assert "dog" not in content
    assert "show-attend-tell" not in content
    assert 'xmp:Rating="5"' in content
    assert (writer.removed, writer.failures) == (1, [])
    assert "1 of replaced photos removed" in writer.summary()
    without_caption(writer, jpeg)[way]()
    assert sidecar_of(jpeg).read_text() == content
    assert writer.removed == 1


@pytest.mark.parametrize("way", ["low", "empty", "failed"])
@pytest.mark.parametrize("languages", [1, 2])
def test_words_of_a_person_outlive_the_photo_that_was_replaced(
    jpeg, writer, way, languages
):
    writer.write(jpeg, "a dog", 0.75)
    edited = sidecar_of(jpeg).read_text().replace("A dog.", "Rex", languages)
    sidecar_of(jpeg).write_text(edited)
    replace(jpeg)
    without_caption(writer, jpeg)[way]()
    content = sidecar_of(jpeg).read_text()
    assert content.count("Rex") == languages
    assert "A dog." not in content
    assert XmpPacket(content.encode()).words() == "Rex"
    assert writer.write(jpeg, "a cat", 0.75) is None
    assert "Rex" in sidecar_of(jpeg).read_text()


def test_a_sidecar_of_a_failed_photo_that_cannot_be_written_is_reported(jpeg, writer):
    writer.write(jpeg, "a dog", 0.75)
    sidecar_of(jpeg).chmod(0o444)
    writer.write_none(jpeg)
    assert writer.failures == []
    replace(jpeg)
    writer.write_none(jpeg)
    (failure,) = writer.failures
    assert failure.reason.endswith("is read-only; make it writable")
    sidecar_of(jpeg).chmod(0o644)
    sidecar_of(jpeg).write_text("not XMP")
    for photo in (jpeg, jpeg.parent, jpeg.with_name("absent.jpg")):
        writer.write_none(photo)
    assert len(writer.failures) == 1


def test_a_caption_of_a_low_confidence_is_left_out_and_counted(jpeg, writer):
    assert writer.write(jpeg, "a cat", 0.02) is None
    assert not sidecar_of(jpeg).exists()
    assert (writer.left_out, counts(writer)) == (1, (0, 0, 0, 0))
    assert "1 left out for a confidence below 0.2" in writer.summary()
    MetadataWriter(MADE_BY, minimum=0).write(jpeg, "a cat", 0.02)
    packet = XmpPacket(sidecar_of(jpeg).read_bytes())
    assert (packet.caption, packet.confidence) == ("A cat.", 0.02)


def test_words_of_a_person_are_kept_unless_overwriting_is_asked_for(jpeg, writer):
    sidecar_of(jpeg).write_text(PERSON)
    assert writer.write(jpeg, "a dog") is None
    assert sidecar_of(jpeg).read_text() == PERSON
    assert writer.kept == [jpeg]
    assert "1 photo with a description by a person" in writer.summary()
    MetadataWriter(MADE_BY, overwrite=True).write(jpeg, "a dog")
    content = sidecar_of(jpeg).read_text()
    assert "Rex" not in content
    assert 'xmp:Rating="5"' in content


def test_a_sidecar_without_a_description_keeps_its_fields_and_its_mode(jpeg, writer):
    start, end = PERSON.index("<dc:description>"), PERSON.index("</rdf:Description>")
    sidecar_of(jpeg).write_text(PERSON[:start] + PERSON[end:])
    sidecar_of(jpeg).chmod(0o640)
    writer.write(jpeg, "a dog")
    assert 'xmp:Rating="5"' in sidecar_of(jpeg).read_text()
    assert sidecar_of(jpeg).stat().st_mode & 0o777 == 0o640
    assert writer.find_packet(jpeg).caption == "A dog."


def test_a_sidecar_of_others_keeps_its_links_and_a_read_only_one_stays(jpeg, writer):
    start, end = PERSON.index("<dc:description>"), PERSON.index("</rdf:Description>")
    rating = PERSON[:start] + PERSON[end:]
    sidecar_of(jpeg).write_text(rating)
    os.link(sidecar_of(jpeg), jpeg.with_name("backup"))
    assert writer.write(jpeg, "a dog")
    assert "A dog." in jpeg.with_name("backup").read_text()
    sidecar_of(jpeg).unlink()
    sidecar_of(jpeg).write_text(rating)
    sidecar_of(jpeg).chmod(0o444)
    assert writer.write(jpeg, "a dog") is None
    assert sidecar_of(jpeg).read_text() == rating
    (failure,) = writer.failures
    assert failure.reason == (
        f"{jpeg}: metadata not written: {jpeg.name}.xmp is read-only; make it writable"
    )


def save_exif(path, text):
    exif = Image.Exif()
    exif[0x010E] = text
    Image.new("RGB", (8, 8)).save(path, exif=exif)


def test_words_inside_the_photo_or_in_an_older_sidecar_are_kept(jpeg, writer):
    Image.new("RGB", (8, 8)).save(jpeg, xmp=PERSON.encode())
    assert words_in_photo(jpeg) == "Rex at the lake"
    save_exif(jpeg.with_name("b.jpg"), "Rex again")
    Image.new("RGB", (8, 8)).save(jpeg.with_name("c.png"))
    jpeg.with_name("c.xmp").write_text(PERSON)
    for name in (jpeg.name, "b.jpg", "c.png"):
        assert writer.write(jpeg.with_name(name), "a dog") is None
        assert not sidecar_of(jpeg.with_name(name)).exists()
    assert counts(writer) == (0, 0, 3, 0)


def test_words_inside_a_gif_and_the_first_part_of_large_metadata_are_kept(jpeg, writer):
    gif = jpeg.with_name("a.gif")
    Image.new("RGB", (8, 8)).save(gif)
    content = gif.read_bytes()
    head, rest = content[:-1], content[-1:]
    magic = b"\x01" + bytes(range(255, -1, -1)) + b"\0"
    gif.write_bytes(head + b"!\xff\x0bXMP DataXMP" + PERSON.encode() + magic + rest)
    parts = 'xmlns:n="http://ns.adobe.com/xmp/note/" n:HasExtendedXMP="A" rdf:about='
    Image.new("RGB", (8, 8)).save(
        jpeg, xmp=PERSON.replace("rdf:about=", parts, 1).encode()
    )
    for photo in (gif, jpeg):
        assert words_in_photo(photo) == "Rex at the lake"
        assert writer.write(photo, "a dog") is None
        assert not sidecar_of(photo).exists()


def test_iptc_captions_are_words(jpeg, monkeypatch):
    monkeypatch.setattr(IptcImagePlugin, "getiptcinfo", lambda _: {(2, 120): b"Rex \0"})
    assert words_in_photo(jpeg) == "Rex"


def test_what_cameras_write_and_malformed_metadata_are_no_words(jpeg, writer):
    save_exif(jpeg, "OLYMPUS DIGITAL CAMERA         ")
    assert writer.write(jpeg, "a dog")
    damaged = jpeg.with_name("d.jpg")
    Image.new("RGB", (8, 8)).save(damaged, xmp=b"<x", exif=b"Exif\0\0junk")
    damaged.with_suffix(".xmp").write_bytes(b"\0junk")
    assert writer.write(damaged, "a dog")


@pytest.mark.timeout(30)
def test_hostile_sidecars_stay_as_they_are_and_are_reported(tmp_path, writer):
    contents = {
        "xxe": f'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]>{PERSON}',
        "huge": " " * (MAX_BYTES + 1),
        "other": "not XMP",
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.jpg.xmp").write_text(content)
    (tmp_path / "victim").write_text("victim")
    (tmp_path / "link.jpg.xmp").symlink_to(tmp_path / "victim")
    (tmp_path / "dangling.jpg.xmp").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe.jpg.xmp")
    (tmp_path / "folder.jpg.xmp").mkdir()
    names = [*contents, "link", "dangling", "pipe", "folder"]
    for name in names:
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.jpg")
        assert writer.write(tmp_path / f"{name}.jpg", "a dog") is None
        assert writer.find_packet(tmp_path / f"{name}.jpg") is None
    assert counts(writer) == (0, 0, 0, len(names))
    assert all("\n" not in one.reason for one in writer.failures)
    for name, content in contents.items():
        assert (tmp_path / f"{name}.jpg.xmp").read_text() == content
    assert (tmp_path / "victim").read_text() == "victim"
    assert not (tmp_path / "absent").exists()


def test_a_folder_that_cannot_be_written_is_a_failure_of_each_photo(
    jpeg, writer, monkeypatch
):
    def full(self, content):
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(type(jpeg), "write_bytes", full)
    assert writer.write(jpeg, "a dog") is None
    (failure,) = writer.failures
    assert failure.reason.endswith("metadata not written: No space left on device")
    assert sorted(p.name for p in jpeg.parent.iterdir()) == [jpeg.name]


def test_an_empty_caption_writes_nothing(jpeg, writer):
    assert writer.write(jpeg, "") is None
    assert counts(writer) == (0, 0, 0, 0)
    assert not sidecar_of(jpeg).exists()


@pytest.fixture
def exiftool():
    found = shutil.which("exiftool")
    if found is None:
        pytest.skip("needs exiftool (Debian: libimage-exiftool-perl)")
    return found


def tags(exiftool, path):
    command = [exiftool, "-j", "-G1", "-a", str(path)]
    return json.loads(subprocess.check_output(command))[0]


def rows(folder):
    return [
        {"path": str(folder / name), "caption": text, "made_by": MADE_BY}
        for name, text in (("a.jpg", 'a "red", dog'), ("é b.jpg", "a cat 's tail"))
    ]


def test_a_table_has_the_columns_of_exiftool(tmp_path):
    (tmp_path / "o.csv").write_bytes(exiftool_table(rows(tmp_path)))
    with (tmp_path / "o.csv").open(newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "SourceFile": str(tmp_path / "a.jpg"),
        "XMP-dc:Description": 'A "red", dog.',
        "XMP-iptcCore:AltTextAccessibility": 'A "red", dog.',
        "XMP-xmp:CreatorTool": f"show-attend-tell, {MADE_BY}",
    }
    assert second["XMP-dc:Description"] == "A cat's tail."


def test_exiftool_gets_no_caption_of_a_low_confidence(tmp_path):
    first, second = (row | {"confidence": 0.1} for row in rows(tmp_path))
    second["confidence"] = 0.0
    (tmp_path / "o.csv").write_bytes(exiftool_table([first, second]))
    assert (tmp_path / "o.csv").read_text().count("\n") == 1
    (tmp_path / "o.csv").write_bytes(exiftool_table([first, second], minimum=0))
    assert (tmp_path / "o.csv").read_text().count("\n") == 3


def test_exiftool_reads_the_table(exiftool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    found = rows(tmp_path / "photos")
    found[1]["path"] = "photos/é b.jpg"  # as if captioned from this folder
    for row in found:
        Image.new("RGB", (8, 8)).save(row["path"])
    (tmp_path / "o.csv").write_bytes(exiftool_table(found))
    subprocess.check_call([exiftool, "-q", "-csv=o.csv", "photos"])
    for row, text in zip(found, ('A "red", dog.', "A cat's tail."), strict=True):
        written = tags(exiftool, row["path"])
        assert written["XMP-dc:Description"] == text
        assert written["XMP-iptcCore:AltTextAccessibility"] == text
        assert written["XMP-xmp:CreatorTool"] == f"show-attend-tell, {MADE_BY}"


def test_exiftool_reads_a_sidecar_back(exiftool, jpeg, writer):
    writer.write(jpeg, "a dog 's ball & a < b é")
    found = tags(exiftool, sidecar_of(jpeg))
    sentence = "A dog's ball & a < b é."
    assert found["XMP-dc:Description"] == found["XMP-dc:Description-en"] == sentence
    assert found["XMP-iptcCore:AltTextAccessibility"] == sentence
    assert found["XMP-xmp:CreatorTool"] == f"show-attend-tell, {MADE_BY}"
    edit = [exiftool, "-q", "-XMP-dc:Description=Rex", str(sidecar_of(jpeg))]
    subprocess.check_output(edit)
    assert writer.write(jpeg, "a dog") is None
    assert writer.kept == [jpeg]


def test_exiftool_reads_the_tags_beside_the_keywords_of_a_person(
    exiftool, jpeg, writer
):
    sidecar = str(sidecar_of(jpeg))
    subprocess.check_call([exiftool, "-q", "-XMP-dc:Subject=lake", "-o", sidecar, jpeg])
    assert writer.write(jpeg, "a dog", 0.9, ["dog", "lake", "grass"])
    assert tags(exiftool, sidecar)["XMP-dc:Subject"] == ["lake", "dog", "grass"]
    assert writer.write(jpeg, "a dog", 0.9, ["dog", "lake", "grass"]) is None
    MetadataWriter("another model").write(jpeg, "a cat", 0.9, ["cat"])
    assert tags(exiftool, sidecar)["XMP-dc:Subject"] == ["lake", "cat"]
