"""Captions of other programs: accepted forms, ids of photos, and errors."""

import json

import pytest
from refusals import refused

from show_attend_tell.evaluation.coco_results import read_captions
from show_attend_tell.runtime.errors import EvaluationError

CAPTIONS = {"1": "a dog", "2": "un café"}
COCO = [{"image_id": 2, "caption": "un café"}, {"image_id": 1, "caption": "a dog"}]
OURS = [{"image_id": "1", "caption": "a dog", "log_prob": -1.5}, COCO[0]]


@pytest.fixture
def write(tmp_path):
    def write(content) -> str:
        path = tmp_path / "captions.json"
        if isinstance(content, dict):
            content = [{"image_id": k, "caption": v} for k, v in content.items()]
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("content", [COCO, OURS, CAPTIONS])
def test_all_forms_return_the_captions_in_the_order_of_the_photos(write, content):
    assert list(read_captions(write(content), ["1", "2"]).items()) == list(
        CAPTIONS.items()
    )


def test_a_number_matches_a_coco_file_name(write):
    photos = ["COCO_val2014_000000000042.jpg", "COCO_val2014_000000123456.jpg"]
    rows = [{"image_id": 123456, "caption": "b"}, {"image_id": 42, "caption": "a"}]
    expected = dict(zip(photos, "ab", strict=True))
    assert read_captions(write(rows), photos) == expected
    mixed = {photos[0]: "a", "123456": "b"}
    assert read_captions(write(mixed), photos) == expected
    with refused(EvaluationError, "1 photos captioned more than once"):
        read_captions(write({**mixed, "42": "b"}), photos)


def test_a_number_matches_a_file_name_of_coco_2017(write):
    rows = [{"image_id": 139, "caption": "a"}, {"image_id": 1000000000, "caption": "b"}]
    photos = ["000000000139.jpg", "001000000000.jpg"]
    expected = dict(zip(photos, "ab", strict=True))
    assert read_captions(write(rows), photos) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([*COCO, COCO[0]], "1 photos captioned more than once: 2; "),
        ({**CAPTIONS, "3": "x"}, "1 photos not in the split: 3; "),
        (COCO[:1], "1 photos without a caption: 1; "),
        ([], "not empty"),
        ("3", "must be a list"),
        ('{"1": "a dog"}', "must be a list"),
        (r'[{"image_id": "1", "caption": "\ud800"}]', "entry 1: must be a list"),
        ("[", "cannot be read .*name a JSON file"),
        ([["1", "a"]], "entry 1: must be a list"),
        ([COCO[0], {"image_id": 1.5, "caption": "a"}], "entry 2: must be a list"),
        ([{"image_id": True, "caption": "a"}], "entry 1: must be a list"),
        ([{"image_id": 1}], "entry 1: must be a list"),
        ({"1": None, "2": "a"}, "entry 1: must be a list"),
        (dict.fromkeys("abcd", "x"), r"such as 1, 2\. Received: a, b, c, \.\.\.;"),
        (
            {"1.jpg": "x", "2": "y"},
            r"such as 1\. Received: 1\.jpg; .*1 of 2",
        ),
    ],
)
def test_an_absent_or_malformed_file_is_a_one_line_error(write, content, message):
    with refused(EvaluationError, "nowhere.json: cannot be read"):
        read_captions("nowhere.json", ["1"])
    with refused(EvaluationError, message) as caught:
        read_captions(write(content), ["1", "2"])
    assert "captions.json" in str(caught.value)
