"""Captions inside photo files, and the columns of `exiftool -csv`, with exiftool."""

import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from tiny_pipeline import photo_bytes

from show_attend_tell.inference.metadata.writer import MetadataWriter
from show_attend_tell.inference.table import EXIFTOOL_COLUMNS, write_table
from show_attend_tell.runtime.errors import MetadataError

MADE_BY = "flickr8k.keras 0123456789ab, beam 5"


@pytest.fixture
def exiftool():
    found = shutil.which("exiftool")
    if found is None:
        pytest.skip("needs exiftool (Debian: libimage-exiftool-perl)")
    return found


@pytest.fixture
def writer(exiftool):
    pytest.importorskip("exiftool", reason="needs the extra [metadata]")
    with MetadataWriter(MADE_BY, "file") as opened:
        yield opened


def tags(exiftool, path):
    command = [exiftool, "-j", "-G1", "-a", str(path)]
    return json.loads(subprocess.check_output(command))[0]


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif"])
def test_a_photo_gets_its_caption_and_keeps_all_else(
    writer, exiftool, tmp_path, suffix
):
    exif = Image.Exif()
    exif[0x010F] = "A camera"
    path = tmp_path / f"-é #{suffix}"
    pixels = np.random.default_rng(0).integers(0, 256, (9, 9, 3), np.uint8)
    Image.fromarray(pixels).save(path, exif=exif)
    path.chmod(0o640)
    before = np.asarray(Image.open(path))
    assert writer.write(path, "a dog 's ball é") == path
    found = tags(exiftool, path)
    assert found["XMP-dc:Description"] == "A dog's ball é."
    assert found["XMP-iptcCore:AltTextAccessibility"] == "A dog's ball é."
    assert found["XMP-xmp:CreatorTool"] == f"show-attend-tell, {MADE_BY}"
    assert found["IFD0:Make"] == "A camera"
    np.testing.assert_array_equal(np.asarray(Image.open(path)), before)
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == [path.name]
    assert writer.find_caption(path) == "A dog's ball é."
    assert writer.write(path, "a dog 's ball é") is None
    assert (writer.written, writer.present) == (1, 1)


def test_words_of_a_person_are_kept_and_links_are_followed(writer, exiftool, tmp_path):
    path, link = tmp_path / "a.jpg", tmp_path / "link.jpg"
    path.write_bytes(photo_bytes(kind="JPEG"))
    link.symlink_to(path)
    assert writer.write(link, "a dog") == link
    assert link.is_symlink()
    assert tags(exiftool, path)["XMP-dc:Description"] == "A dog."
    edit = [exiftool, "-q", "-overwrite_original", "-XMP-dc:Description=Rex", path]
    subprocess.check_call(edit)
    content = path.read_bytes()
    assert writer.write(path, "a dog") is None
    assert (writer.kept, path.read_bytes()) == ([path], content)
    with MetadataWriter(MADE_BY, "file", overwrite=True) as other:
        other.write(path, "a cat")
    assert tags(exiftool, path)["XMP-dc:Description"] == "A cat."


def test_photos_that_exiftool_cannot_write_stay_as_they_are(writer, tmp_path):
    names = ("a.bmp", "a.ppm", "line\nbreak.jpg", "damaged.jpg")
    for name in names:
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / "damaged.jpg").write_bytes(b"\xff\xd8\xff junk")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    for name in (*names, "absent.jpg"):
        assert writer.write(tmp_path / name, "a dog") is None
    assert len(writer.failures) == 5
    assert {name: (tmp_path / name).read_bytes() for name in names} == before
    assert sorted(os.listdir(tmp_path)) == sorted(names)


def test_without_exiftool_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "exiftool", None)
    name = "show_attend_tell.inference.metadata.exiftool_packets"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MetadataError, match="pip install PyExifTool"):
        MetadataWriter(MADE_BY, "file")


def test_without_the_program_the_remedy_is_named(monkeypatch, tmp_path):
    pytest.importorskip("exiftool", reason="needs the extra [metadata]")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MetadataError, match="libimage-exiftool-perl") as caught:
        MetadataWriter(MADE_BY, "file")
    assert "\n" not in str(caught.value)


def rows(folder):
    return [
        {"path": str(folder / name), "caption": text, "made_by": MADE_BY}
        for name, text in (("a.jpg", 'a "red", dog'), ("é b.jpg", "a cat 's tail"))
    ]


def test_a_table_has_the_columns_of_exiftool(tmp_path):
    write_table(tmp_path / "o.csv", rows(tmp_path), EXIFTOOL_COLUMNS)
    with (tmp_path / "o.csv").open(newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "SourceFile": str(tmp_path / "a.jpg"),
        "XMP-dc:Description": 'A "red", dog.',
        "XMP-iptcCore:AltTextAccessibility": 'A "red", dog.',
        "XMP-xmp:CreatorTool": f"show-attend-tell, {MADE_BY}",
    }
    assert second["XMP-dc:Description"] == "A cat's tail."


def test_exiftool_reads_the_table(exiftool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    found = rows(tmp_path / "photos")
    found[1]["path"] = "photos/é b.jpg"  # as if captioned from this folder
    for row in found:
        Image.new("RGB", (8, 8)).save(row["path"])
    write_table(tmp_path / "o.csv", found, EXIFTOOL_COLUMNS)
    subprocess.check_call([exiftool, "-q", "-csv=o.csv", "photos"])
    for row, text in zip(found, ('A "red", dog.', "A cat's tail."), strict=True):
        written = tags(exiftool, row["path"])
        assert written["XMP-dc:Description"] == text
        assert written["XMP-iptcCore:AltTextAccessibility"] == text
        assert written["XMP-xmp:CreatorTool"] == f"show-attend-tell, {MADE_BY}"
