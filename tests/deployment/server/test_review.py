"""Approved captions come back as a table, or as sidecars in an archive."""

import csv
import io
import time
import zipfile

import pytest
import requests

from show_attend_tell.deployment.server import review
from show_attend_tell.inference.batch import made_by
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.xmp import XmpPacket

APPROVED = {
    "path": "trip/é 1.jpg",
    "sentence": 'A "red" dog, running.',
    "confidence": 0.7,
    "model": "Tiny",
    "edited": False,
}
EDITED = APPROVED | {"path": "b.png", "sentence": "Rex.", "edited": True}


def ask(address, form, *captions):
    body = {"form": form, "captions": captions}
    return requests.post(f"{address}/review", json=body, timeout=60)


def test_a_table_has_a_row_for_each_caption(address):
    response = ask(address, "csv", APPROVED, EDITED)
    assert response.headers["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.content.decode("utf-8-sig"))))
    assert rows[0] == {
        "path": "trip/é 1.jpg",
        "caption": 'A "red" dog, running.',
        "confidence": "0.7",
        "confidence_word": "unsure",
        "edited": "False",
        "tags": "",
    }
    assert [row["edited"] for row in rows] == ["False", "True"]
    assert response.content.startswith("\ufeffpath,".encode())  # for Excel


@pytest.mark.parametrize("break_", ["\r", "\n", "\r\n"])
def test_a_line_break_in_a_sentence_is_read_back(address, break_):
    edited = EDITED | {"sentence": f"Rex{break_}at the lake."}
    content = ask(address, "csv", edited, APPROVED).content.decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(content, newline="")))
    captions = [row["caption"] for row in rows]
    assert captions == [edited["sentence"], APPROVED["sentence"]]


def test_words_of_a_person_have_no_confidence(address):
    content = ask(address, "csv", EDITED).content.decode("utf-8-sig")
    (row,) = csv.DictReader(io.StringIO(content))
    assert (row["caption"], row["confidence"], row["confidence_word"]) == (
        "Rex.",
        "",
        "",
    )


def test_an_archive_has_sidecars_and_edited_words_are_a_persons(address, pipeline):
    content = ask(address, "xmp", APPROVED, EDITED).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["trip/é 1.jpg.xmp", "b.png.xmp"]
        ours, persons = (XmpPacket(archive.read(n)) for n in archive.namelist())
    assert (ours.caption, ours.confidence) == (APPROVED["sentence"], 0.7)
    assert ours.made_by == made_by(pipeline)
    assert (persons.words(), persons.made_by) == ("Rex.", "")


def test_entries_are_those_of_any_zip_program(address):
    before = time.mktime(time.localtime()) - 2  # ZIP counts in steps of 2 s
    content = ask(address, "xmp", APPROVED, EDITED).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            assert entry.compress_type == zipfile.ZIP_DEFLATED
            assert entry.compress_size < entry.file_size
            assert entry.external_attr >> 16 == 0o100644
            written = time.mktime((*entry.date_time, 0, 0, -1))
            assert before <= written <= time.time() + 2


def test_a_clock_before_1980_stops_no_archive(address, monkeypatch):
    monkeypatch.setattr(review.time, "localtime", lambda: time.gmtime(0))
    content = ask(address, "xmp", APPROVED).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.infolist()[0].date_time == (1980, 1, 1, 0, 0, 0)


@pytest.mark.parametrize(
    "path",
    [
        "Screenshot 2026-11-29 at 10.15.23\u202fAM.png",  # as macOS names them
        "Foto\u00a01.jpg",
        "\N{MAN}\u200d\N{WOMAN}.jpg",
        "\u3000.jpg",
    ],
)
def test_names_with_other_spaces_and_joined_emoji_are_saved(address, path):
    content = ask(address, "csv", APPROVED | {"path": path}).content.decode("utf-8-sig")
    (row,) = csv.DictReader(io.StringIO(content))
    assert row["path"] == path
    content = ask(address, "xmp", APPROVED | {"path": path}).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == [f"{path}.xmp"]


@pytest.mark.parametrize("form", ["csv", "xmp"])
@pytest.mark.parametrize("path", ["b.png", "./b.png"])
def test_a_photo_has_one_caption(address, form, path):
    response = ask(address, form, EDITED, EDITED | {"path": path})
    assert response.status_code == 422
    assert response.json()["error"].startswith("`path` must differ for each caption")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("path", p) for p in ("../a.jpg", "/a.jpg", "a/../../b", "C:/a", "a\\b", "")],
        *[("path", p) for p in ("a\n.jpg", "a\0.jpg", "\x1b[2J.jpg", "\ud800.jpg")],
        ("model", "other"),
        ("confidence", 2),
        ("sentence", "x" * 5001),
        ("confidnce", 0.5),
    ],
)
def test_a_malformed_caption_is_refused_in_one_line(address, key, value):
    response = ask(address, "xmp", APPROVED | {key: value})
    assert response.status_code == 422
    assert key in response.json()["error"]
    assert "\n" not in response.json()["error"]


def test_tags_are_keywords_of_the_sidecar_and_a_column_of_the_table(address, pipeline):
    tagged = APPROVED | {"tags": ["dog", "lake"]}
    both = [tagged, EDITED | {"tags": ["dog"]}]
    content = ask(address, "xmp", *both).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        ours, persons = (XmpPacket(archive.read(n)) for n in archive.namelist())
    assert ours.tags == ours.keywords == ("dog", "lake")
    assert ours.made_by == made_by(pipeline, CaptionRequest(tags=True))
    assert (persons.tags, persons.made_by) == (("dog",), "")
    content = ask(address, "csv", *both).content.decode("utf-8-sig")
    rows = csv.DictReader(io.StringIO(content))
    assert [row["tags"] for row in rows] == ["dog, lake", "dog"]
