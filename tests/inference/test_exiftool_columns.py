"""The columns of `exiftool -csv`, with exiftool."""

import csv
import json
import shutil
import subprocess

import pytest
from PIL import Image

from show_attend_tell.inference.journal import write_table

MADE_BY = "flickr8k.keras 0123456789ab, beam 5"


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
    write_table(tmp_path / "o.csv", rows(tmp_path), exiftool=True)
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
    write_table(tmp_path / "o.csv", found, exiftool=True)
    subprocess.check_call([exiftool, "-q", "-csv=o.csv", "photos"])
    for row, text in zip(found, ('A "red", dog.', "A cat's tail."), strict=True):
        written = tags(exiftool, row["path"])
        assert written["XMP-dc:Description"] == text
        assert written["XMP-iptcCore:AltTextAccessibility"] == text
        assert written["XMP-xmp:CreatorTool"] == f"show-attend-tell, {MADE_BY}"
