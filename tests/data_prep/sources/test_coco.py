"""Test the reader of COCO 2014, with and without Karpathy's splits."""

import json

import pytest
from data_prep_files import JPEG, coco_json, karpathy_json, make_file, make_zip

from data_prep.data_folder import DataFolder
from data_prep.preparation import (
    DUPLICATE_ID,
    MALFORMED_LINE,
    MISSING_PHOTO,
    TWO_SPLITS,
)
from data_prep.sources.published import read_coco
from show_attend_tell.runtime.errors import DataError

TRAIN = {"COCO_train2014_1.jpg": ["A man .", "One man ."]}
VAL = {f"COCO_val2014_{number}.jpg": [f"{number} men ."] for number in (2, 3, 4)}
SPLITS = karpathy_json(
    [
        ("COCO_train2014_1.jpg", "train", ["a man", "one man"]),
        ("COCO_val2014_2.jpg", "restval", ["2 men"]),
        ("COCO_val2014_3.jpg", "val", ["3 men"]),
        ("COCO_val2014_4.jpg", "test", ["4 men"]),
    ]
)


def make_coco(folder, train=None, val=None, splits=None):
    for name in (*TRAIN, *VAL):
        make_file(folder / name.split("_")[1] / name, JPEG)
    train = coco_json(TRAIN) if train is None else train
    val = coco_json(VAL, first=2) if val is None else val
    entries = {
        "annotations/captions_train2014.json": train,
        "annotations/captions_val2014.json": val,
    }
    entries = {name: text for name, text in entries.items() if text}
    if entries:
        make_zip(folder / "annotations_trainval2014.zip", entries)
    if splits:
        make_file(folder / "dataset_coco.json", splits)
    return folder


def read(folder):
    data = DataFolder(folder, folder.parent / "work")
    return {photo.id: photo for photo in read_coco(data)}, data.problems


def splits(photos):
    return [photos[name].split for name in sorted(photos)]


def test_cocos_own_splits_are_used_without_karpathys(tmp_path):
    photos, problems = read(make_coco(tmp_path / "data"))
    assert splits(photos) == ["train", "val", "val", "val"]
    assert photos["COCO_train2014_1.jpg"].captions == ("A man .", "One man .")
    name = "COCO_val2014_2.jpg"
    assert photos[name].path == tmp_path / "data" / "val2014" / name
    assert len(problems) == 0
    assert "the splits are COCO's" in problems.notes[0]


def test_restval_is_in_the_training_split(tmp_path):
    photos, problems = read(make_coco(tmp_path / "data", splits=SPLITS))
    assert splits(photos) == ["train", "train", "val", "test"]
    assert photos["COCO_val2014_2.jpg"].captions == ("2 men .",)
    assert len(problems) == 0
    assert problems.notes == []


def test_karpathys_file_alone_gives_captions_too(tmp_path):
    photos, problems = read(make_coco(tmp_path / "data", "", "", SPLITS))
    assert photos["COCO_train2014_1.jpg"].captions == ("a man", "one man")
    assert "the captions come from dataset_coco.json" in problems.notes[0]


def test_one_annotation_file_of_two_is_not_enough(tmp_path):
    with pytest.raises(DataError, match=r"captions_val2014\.json must be in"):
        read(make_coco(tmp_path / "data", val=""))


def test_malformed_rows_and_duplicate_ids_are_problems(tmp_path):
    content = json.loads(coco_json(TRAIN))
    content["annotations"] += [
        content["annotations"][0],
        {"id": 7, "image_id": 99, "caption": "Of no image ."},
        {"id": 8, "image_id": 1},
        {"id": 9, "image_id": 1, "caption": "half \ud800"},
        "malformed",
    ]
    content["images"].append({"id": 1, "file_name": "other.jpg"})
    photos, problems = read(make_coco(tmp_path / "data", json.dumps(content)))
    assert photos["COCO_train2014_1.jpg"].captions == ("A man .", "One man .")
    assert [name.rsplit("/", 1)[1] for name in problems.names(DUPLICATE_ID)] == [
        "captions_train2014.json: image 1",
        "captions_train2014.json: annotation 1000",
    ]
    assert problems.names(MISSING_PHOTO)[0].endswith("image 99")
    assert [name.rsplit(" ", 1)[1] for name in problems.names(MALFORMED_LINE)] == [
        "annotations:5",
        "annotations:6",
        "annotations:7",
    ]


def test_a_photo_in_both_annotation_files_is_in_no_split(tmp_path):
    folder = make_coco(tmp_path / "data", val=coco_json({**VAL, **TRAIN}, first=2))
    photos, problems = read(folder)
    assert "COCO_train2014_1.jpg" not in photos
    assert problems.names(TWO_SPLITS) == ["COCO_train2014_1.jpg"]
