"""Files of labels, and one line for each that cannot be read."""

import json

import pytest
from refusals import refused
from shell import exit_code

from show_attend_tell.runtime.errors import DataError
from show_attend_tell.training.labels import Label, read_labels

GOOD = {"photo": "1.jpg", "caption": "a dog", "labels": ["right", "slip"]}


def write(path, *rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_label_is_the_lowest_of_its_passes(tmp_path):
    other = GOOD | {"photo": "2.jpg", "labels": ["wrong"], "list": "coco"}
    found = read_labels(write(tmp_path / "labels.jsonl", GOOD, other))
    assert found == [
        Label("1.jpg", "a dog", (2, 1)),
        Label("2.jpg", "a dog", (0,), "coco"),
    ]
    assert [label.grade for label in found] == [1, 0]


def test_about_half_of_the_photos_fit_whatever_the_other_photos_are():
    fitted = [Label(f"{k}.jpg", "", (0,)).is_fitted for k in range(1000)]
    assert 450 < sum(fitted) < 550
    # printf 1.jpg | sha256sum: 4c46...; 5.jpg: 3f...
    assert Label("1.jpg", "", (0,)).is_fitted
    assert not Label("5.jpg", "", (2,)).is_fitted


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "must have a label a line. Received: an empty file"),
        (["{"], "line 1: not JSON"),
        ([GOOD, "5"], "line 2: a line must be a JSON object"),
        ([GOOD | {"photo": None}], "line 1: `photo` must be text. Received: None"),
        ([GOOD | {"caption": 5}], "line 1: `caption` must be text. Received: 5"),
        ([GOOD | {"list": 5}], "line 1: `list` must be text. Received: 5"),
        ([GOOD | {"labels": []}], r"line 1: `labels` must be a list .* Received: \[\]"),
        ([GOOD | {"labels": "right"}], "line 1: `labels` must be a list"),
        (
            [GOOD | {"labels": ["good"]}],
            "line 1: a label must be one of wrong, slip, right. Received: 'good'",
        ),
        ([GOOD | {"labels": [["right"]]}], "line 1: a label must be one of"),
        ([GOOD, GOOD], "line 2: the photo '1.jpg' occurs twice"),
        (
            [
                GOOD | {"photo": f"COCO_{split}2014_000000000071.jpg"}
                for split in ("val", "train")
            ],
            "'COCO_train2014_000000000071.jpg' occurs twice, also as 'COCO_val2014_",
        ),
    ],
)
def test_a_malformed_file_is_one_line(tmp_path, rows, message):
    path = write(tmp_path / "labels.jsonl", *rows)
    with refused(DataError, message) as caught:
        read_labels(path)
    assert str(caught.value).startswith(str(path))


def test_an_editor_s_mark_blank_lines_and_separators_in_a_caption_are_read(tmp_path):
    path = tmp_path / "labels.jsonl"
    first = json.dumps(GOOD | {"caption": "a\u2028dog\x85"}, ensure_ascii=False)
    second = json.dumps(GOOD | {"photo": "2.jpg"})
    content = f"\ufeff{first}\r\n\n{second}\n\n \n"
    path.write_bytes(content.encode())
    found = read_labels(path)
    assert [label.photo for label in found] == ["1.jpg", "2.jpg"]
    assert found[0].caption == "a\u2028dog\x85"
    path.write_bytes(f"{content}5\n".encode())
    with refused(DataError, "line 6: a line must be a JSON object"):
        read_labels(path)


def test_an_absent_file_or_one_of_bytes_is_one_line(tmp_path):
    with refused(DataError, "cannot be read"):
        read_labels(tmp_path / "absent.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    with refused(DataError, "cannot be read"):
        read_labels(tmp_path / "bytes.jsonl")
    with refused(DataError, "not a regular file"):
        read_labels(tmp_path)


def test_the_command_reads_the_labels_before_the_model(tmp_path, capsys):
    path = write(tmp_path / "labels.jsonl", GOOD | {"labels": ["good"]})
    assert exit_code("calibrate", "-e", "scenes", "--labels", path) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "a label must be one of wrong, slip, right" in line
