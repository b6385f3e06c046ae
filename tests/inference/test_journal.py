"""The JSON Lines journal: repair, refusal, locking, and the CSV made from it."""

import csv
import fcntl
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from show_attend_tell.inference.journal import FIELDS, CaptionJournal
from show_attend_tell.inference.result import Caption
from show_attend_tell.inference.table import require_replaceable, write_table
from show_attend_tell.runtime.errors import OutputFileError

MADE_BY = "model.keras 0123456789ab, beam 3"
NAMES = ["a b.jpg", "été.jpg", 'say "hi", twice.jpg', "two\nlines.jpg", "\udcff.jpg"]


def caption(path, text="a red circle"):
    nothing = np.zeros((0,))
    arrays = dict.fromkeys(
        ("word_log_probs", "attention", "beta", "square", "view"), nothing
    )
    return Caption(
        path=Path(path),
        text=text,
        words=tuple(text.split()),
        log_prob=-2.5,
        score=-1.25,
        end_log_prob=None,
        alternatives=(),
        **arrays,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.jsonl"


def write(path, names, made_by=MADE_BY):
    with CaptionJournal(path, made_by) as journal:
        journal.append(caption(name) for name in names if name not in journal)
        return journal.rows


def test_rows_come_back_as_they_were_appended(path):
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
    rows = write(path, NAMES[:4])
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["path"] for row in found] == NAMES[:4]
    assert all(tuple(row) == FIELDS for row in found)
    table = path.with_suffix(".csv")
    write_table(table, rows)
    with table.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert found == [{key: str(row[key]) for key in FIELDS} for row in rows]


@pytest.mark.parametrize(
    "content",
    [
        "my notes",
        "a,b\n1,2\n",
        '{"a": 1}\n',
        '{"path": 3}\n',
        "[]\nx",
        "3\n",
        '{"path": "a", "caption": "b", "log_prob": "?", "score": 1, "made_by": "c"}\n',
        '{"log_prob": 1, "score": 1}\n',
    ],
)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(path, content):
    path.write_text(content)
    with pytest.raises(OutputFileError, match="name another file"):
        CaptionJournal(path, MADE_BY)
    assert path.read_text() == content


def test_captions_of_another_model_are_not_mixed_in(path):
    write(path, NAMES)
    with pytest.raises(OutputFileError, match="by model.keras .*, and not by other"):
        write(path, [], "other")


LOCK = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_while_the_first_one_writes(path):
    command = [sys.executable, "-c", LOCK, f"{path}.lock"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with CaptionJournal(path, MADE_BY):
        refused = subprocess.run(command, capture_output=True, text=True, input="")
        assert "BlockingIOError" in refused.stderr
        with pytest.raises(OutputFileError, match="another process is writing it"):
            CaptionJournal(path, MADE_BY)
    with subprocess.Popen(command, **pipes) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(OutputFileError, match="another process is writing it"):
            CaptionJournal(path, MADE_BY)
        other.communicate("")
    with CaptionJournal(path, MADE_BY):
        pass


def test_a_process_that_opened_the_lock_file_earlier_locks_the_same_one(path):
    with CaptionJournal(path, MADE_BY):
        early = open(f"{path}.lock", "a")  # a process that is about to lock
    with early:
        fcntl.flock(early, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(OutputFileError, match="another process is writing it"):
            CaptionJournal(path, MADE_BY)


@pytest.mark.parametrize("rows", [[], NAMES[:2]])
@pytest.mark.parametrize(
    "content", ["a,b\n1,2\n", "my notes", f"{','.join(FIELDS)}\nx.jpg,a,-1.0,-1.0,m\n"]
)
def test_a_table_with_other_lines_is_not_replaced(path, rows, content):
    table = path.with_suffix(".csv")
    table.write_text(content)
    with pytest.raises(OutputFileError, match="not in rows.jsonl.*; name another file"):
        require_replaceable(table, write(path, rows))
    assert table.read_text() == content


def test_a_table_of_the_same_lines_is_replaced(path):
    table = path.with_suffix(".csv")
    rows = write(path, NAMES)
    for count in (0, 2, 5):
        write_table(table, rows[:count])
        require_replaceable(table, rows)
    table.unlink()
    require_replaceable(table, rows)
