"""The file that captions are added to: repair, refusal, round trips."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from show_attend_tell.inference.output_file import FIELDS, CaptionRows
from show_attend_tell.inference.result import Caption
from show_attend_tell.runtime.errors import OutputFileError

MADE_BY = "model.keras 0123456789ab, beam 3"
NAMES = ["a b.jpg", "été.jpg", 'say "hi", twice.jpg', "two\nlines.jpg", "\udcff.jpg"]


def caption(path, text="a red circle"):
    nothing = np.zeros((0,))
    return Caption(
        Path(path), text, tuple(text.split()), -2.5, -1.25, *([nothing] * 4), (), None
    )


@pytest.fixture(params=["rows.jsonl", "rows.csv"])
def path(request, tmp_path):
    return tmp_path / request.param


def write(path, names, made_by=MADE_BY):
    with CaptionRows(path, made_by) as rows:
        rows.add(caption(name) for name in names if name not in rows)
        return rows.rows


def test_rows_come_back_as_they_were_added(path):
    written = write(path, NAMES)
    assert [row["path"] for row in written] == NAMES
    assert written[0] == {
        "path": "a b.jpg",
        "caption": "a red circle",
        "log_prob": -2.5,
        "score": -1.25,
        "made_by": MADE_BY,
    }
    assert write(path, []) == written


def test_a_photo_is_never_written_twice_by_whatever_path(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(path, NAMES)
    assert len(write(path, [*NAMES, "./a b.jpg", str(tmp_path / "a b.jpg")])) == 5


def test_a_file_cut_anywhere_is_repaired_without_loss_or_repetition(path):
    expected = write(path, NAMES)
    content = path.read_bytes()
    for length in [*range(0, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:length])
        assert write(path, NAMES) == expected
        assert path.read_bytes() == content


def test_other_programs_read_the_rows(path):
    write(path, NAMES[:3])
    if path.suffix == ".csv":
        with open(path, encoding="utf-8", newline="") as file:
            found = list(csv.DictReader(file))
    else:
        found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["path"] for row in found] == NAMES[:3]
    assert all(tuple(row) == FIELDS for row in found)


@pytest.mark.parametrize(
    "content", ["my notes", "a,b\n1,2\n", '{"a": 1}\n', '{"path": 3}\n', "[]\nx"]
)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(path, content):
    path.write_text(content)
    with pytest.raises(OutputFileError, match="name another file"):
        CaptionRows(path, MADE_BY)
    assert path.read_text() == content


def test_captions_of_another_model_are_not_mixed_in(path):
    write(path, NAMES)
    with pytest.raises(OutputFileError, match="by model.keras .*, and not by other"):
        write(path, [], "other")


def test_two_processes_cannot_write_the_same_file(path):
    with (
        CaptionRows(path, MADE_BY),
        pytest.raises(OutputFileError, match="another"),
    ):
        CaptionRows(path, MADE_BY)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(OutputFileError, match=r"must end in .jsonl or .csv"):
        CaptionRows(tmp_path / "rows.txt", MADE_BY)
