"""Approved captions come back as a table, or as sidecars in an archive."""

import csv
import io
import zipfile

import pytest
import requests

from show_attend_tell.inference.batch import made_by
from show_attend_tell.inference.xmp import XmpPacket

APPROVED = {
    "path": "trip/é 1.jpg",
    "sentence": 'A "red" dog, running.',
    "confidence": 0.6,
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
    rows = list(csv.DictReader(io.StringIO(response.content.decode())))
    assert rows[0] == {
        "path": "trip/é 1.jpg",
        "caption": 'A "red" dog, running.',
        "confidence": "0.6",
        "confidence_word": "likely",
        "edited": "False",
    }
    assert [row["edited"] for row in rows] == ["False", "True"]


def test_an_archive_has_sidecars_and_edited_words_are_a_persons(address, pipeline):
    content = ask(address, "xmp", APPROVED, EDITED).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["trip/é 1.jpg.xmp", "b.png.xmp"]
        ours, persons = (XmpPacket(archive.read(n)) for n in archive.namelist())
    assert (ours.caption, ours.confidence) == (APPROVED["sentence"], 0.6)
    assert ours.made_by == made_by(pipeline)
    assert (persons.words(), persons.made_by) == ("Rex.", "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("path", p) for p in ("../a.jpg", "/a.jpg", "a/../../b", "C:/a", "a\\b", "")],
        ("model", "other"),
        ("confidence", 2),
        ("sentence", "x" * 5001),
    ],
)
def test_a_malformed_caption_is_refused_in_one_line(address, key, value):
    response = ask(address, "xmp", APPROVED | {key: value})
    assert response.status_code == 422
    assert key in response.json()["error"]
    assert "\n" not in response.json()["error"]
