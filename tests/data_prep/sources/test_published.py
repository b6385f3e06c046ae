"""Test the readers of Flickr8k, Flickr30k and COCO, on archives and on folders."""

import json
from pathlib import Path

import pytest
from data_prep_files import (
    JPEG,
    coco_json,
    flickr8k_texts,
    karpathy_json,
    make_file,
    make_flickr8k,
    make_zip,
)
from refusals import refused

from data_prep.data_folder import DataFolder
from data_prep.preparation import Problem
from data_prep.sources.published import (
    read_coco,
    read_flickr8k,
    read_flickr30k,
    read_karpathy,
)
from data_prep.sources.tables import split_by_hash
from show_attend_tell.runtime.errors import DataError


def read(reader, folder):
    data = DataFolder(folder, folder.parent / "work")
    return reader(data), data.problems


def splits(photos):
    return {photo.id: photo.split for photo in photos}


def test_any_data_set_is_read_from_karpathys_json(tmp_path):
    rows = [("a.jpg", "train", ["A cat ."]), ("b.jpg", "val", ["A dog .", "A fox ."])]
    make_file(tmp_path / "data" / "dataset_mine.json", karpathy_json(rows))
    for name in ("a.jpg", "b.jpg"):
        make_file(tmp_path / "data" / "images" / name)
    photos, problems = read(read_karpathy, tmp_path / "data")
    assert splits(photos) == {"a.jpg": "train", "b.jpg": "val"}
    assert photos[1].captions == ("A dog .", "A fox .")
    assert len(problems) == 0


@pytest.mark.parametrize("names", [[], ["one.json", "two.json"]])
def test_karpathys_json_must_be_one_file(tmp_path, names):
    for name in ["images/a.jpg", *names]:
        make_file(tmp_path / "data" / name)
    listed = f"one .json file.*Received: {', '.join(names) or 'none'}"
    with refused(DataError, listed):
        read(read_karpathy, tmp_path / "data")


def test_flickr8k_without_a_test_list_has_a_note(tmp_path):
    folder = make_flickr8k(tmp_path / "data", packed=False)
    (folder / "text" / "Flickr_8k.testImages.txt").unlink()
    photos, problems = read(read_flickr8k, folder)
    assert splits(photos)["cow.jpg"] == "none"
    assert problems.notes == ["no Flickr_8k.testImages.txt: the split 'test' is empty"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text/Flickr8k.token.txt", r"Flickr8k.token\.txt must be in this folder"),
        ("text/Flickr_8k.trainImages.txt", r"trainImages\.txt must be in this folder"),
        ("images", "no photo is in this folder"),
    ],
)
def test_flickr8k_without_captions_photos_or_training_list_is_refused(
    tmp_path, name, message
):
    folder = make_flickr8k(tmp_path / "data", packed=False)
    (folder / name).rename(tmp_path / "away")
    with refused(DataError, message):
        read(read_flickr8k, folder)


def test_a_caption_of_an_absent_photo_is_a_problem(tmp_path):
    tokens = "dog.jpg#0\tA dog .\nhen.jpg.1#0\tA hen .\nhen.jpg.1#1\tA hen .\n"
    folder = make_flickr8k(tmp_path / "data", True, **{"Flickr8k.token": tokens})
    photos, problems = read(read_flickr8k, folder)
    assert splits(photos) == {"dog.jpg": "train"}
    assert problems.names(Problem.MISSING_PHOTO) == ["hen.jpg.1"]
    assert problems.names(Problem.NO_CAPTIONS) == ["cat.jpg", "cow.jpg", "hen.jpg"]
    assert problems.notes == [
        "photos skipped that have no caption and are in no list: 1"
    ]


def test_malformed_lines_of_a_token_file_are_problems(tmp_path):
    tokens = (
        "dog.jpg#0\tA dog .\r\n"
        "no tab here\n"
        "dog.jpg#0\tDuplicate .\n"
        "\n"
        "dog.jpg#1\t ! . \n"
        "cat.jpg\tno number\n"
        "cat.jpg#0\t  A cat with a \x85 strange space .  \n"
    )
    folder = make_flickr8k(tmp_path / "data", False, **{"Flickr8k.token": tokens})
    photos, problems = read(read_flickr8k, folder)
    label = folder / "text" / "Flickr8k.token.txt"
    assert problems.names(Problem.MALFORMED_LINE) == [f"{label}:2", f"{label}:6"]
    assert problems.names(Problem.DUPLICATE_ID) == ["dog.jpg#0"]
    assert problems.names(Problem.EMPTY_CAPTION) == ["dog.jpg#1"]
    assert [photo.captions for photo in photos] == [
        ("A cat with a \x85 strange space .",),
        ("A dog .",),
    ]


def test_a_photo_in_two_lists_is_in_no_split_at_all(tmp_path):
    changes = {"Flickr_8k.devImages": "hen.jpg\ndog.jpg\nhen.jpg\n"}
    folder = make_flickr8k(tmp_path / "data", False, **changes)
    photos, problems = read(read_flickr8k, folder)
    assert "dog.jpg" not in splits(photos)
    assert problems.names(Problem.TWO_SPLITS) == ["dog.jpg"]
    label = folder / "text" / "Flickr_8k.devImages.txt"
    assert problems.names(Problem.DUPLICATE_ID) == [f"{label}: hen.jpg"]


def test_text_that_is_not_utf8_is_refused_by_name(tmp_path):
    folder = make_flickr8k(tmp_path / "data", packed=False)
    make_file(folder / "text" / "Flickr8k.token.txt", b"dog.jpg#0\tA caf\xe9 .\n")
    with pytest.raises(DataError, match=r"Flickr8k\.token\.txt: cannot be read .*UTF"):
        read(read_flickr8k, folder)


KARPATHY = karpathy_json(
    [
        ("1.jpg", "train", ["one man", "a man"]),
        ("2.jpg", "val", ["two men"]),
        ("3.jpg", "test", ["three men"]),
    ]
)
TOKENS = "1.jpg#0\tOne man .\n1.jpg#1\tA man .\n2.jpg#0\tTwo .\n3.jpg#0\tThree .\n"
RESULTS = (
    "image_name| comment_number| comment\n"
    "1.jpg| 0| One man .\n1.jpg| 1| A man .\n2.jpg| 0| Two .\n3.jpg| 0| Three .\n"
    "3.jpg| 4   A dog runs across the grass .\n"  # as in the common copy of the file
)


def make_flickr30k(folder: Path, name: str | None, text: str = "") -> Path:
    make_zip(folder / "caption_datasets.zip", {"dataset_flickr30k.json": KARPATHY})
    for number in (1, 2, 3):
        make_file(folder / "flickr30k_images" / f"{number}.jpg", JPEG)
    if name:
        make_file(folder / name, text)
    return folder


@pytest.mark.parametrize(
    ("name", "text", "captions", "malformed"),
    [
        ("results_20130124.token", TOKENS, ("One man .", "A man ."), 0),
        ("results.csv", RESULTS, ("One man .", "A man ."), 1),
        (None, "", ("one man", "a man"), 0),
    ],
)
def test_flickr30k_reads_captions_of_tokens_and_splits_of_karpathy(
    tmp_path, name, text, captions, malformed
):
    folder = make_flickr30k(tmp_path / "data", name, text)
    photos, problems = read(read_flickr30k, folder)
    assert splits(photos) == {"1.jpg": "train", "2.jpg": "val", "3.jpg": "test"}
    assert photos[0].captions == captions
    note = "the captions come from dataset_flickr30k.json"
    assert any(note in line for line in problems.notes) == (name is None)
    assert len(problems) == len(problems.names(Problem.MALFORMED_LINE)) == malformed


@pytest.mark.parametrize("text", ["{", "[]", '{"images": 1}', "[" * 10**5])
def test_a_malformed_split_file_is_refused_by_name(tmp_path, text):
    folder = make_flickr30k(tmp_path / "data", None)
    make_file(folder / "dataset_flickr30k.json", text)
    with pytest.raises(DataError, match=r"flickr30k\.json: .*; (download|is it)"):
        read(read_flickr30k, folder)


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


def read_by_name(folder):
    photos, problems = read(read_coco, folder)
    return {photo.id: photo for photo in photos}, problems


def test_cocos_own_splits_are_used_without_karpathys(tmp_path):
    photos, problems = read_by_name(make_coco(tmp_path / "data"))
    assert [photo.split for photo in photos.values()] == ["train", "val", "val", "val"]
    assert photos["COCO_train2014_1.jpg"].captions == ("A man .", "One man .")
    name = "COCO_val2014_2.jpg"
    assert photos[name].path == tmp_path / "data" / "val2014" / name
    assert len(problems) == 0
    assert "the splits are COCO's" in problems.notes[0]


@pytest.mark.parametrize("annotations", [None, ""])
def test_karpathys_file_gives_the_splits_and_captions_where_they_are_absent(
    tmp_path, annotations
):
    folder = make_coco(tmp_path / "data", annotations, annotations, SPLITS)
    photos, problems = read_by_name(folder)
    splits = [photo.split for photo in photos.values()]
    assert splits == ["train", "train", "val", "test"]  # restval is in train
    assert len(problems) == 0
    if annotations is None:
        assert photos["COCO_val2014_2.jpg"].captions == ("2 men .",)
        assert problems.notes == []
    else:
        assert photos["COCO_train2014_1.jpg"].captions == ("a man", "one man")
        assert "the captions come from dataset_coco.json" in problems.notes[0]


def test_one_annotation_file_of_two_is_not_enough(tmp_path):
    with pytest.raises(DataError, match=r"captions_val2014\.json must be in"):
        read_by_name(make_coco(tmp_path / "data", val=""))


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
    photos, problems = read_by_name(make_coco(tmp_path / "data", json.dumps(content)))
    assert photos["COCO_train2014_1.jpg"].captions == ("A man .", "One man .")
    assert [
        name.rsplit("/", 1)[1] for name in problems.names(Problem.DUPLICATE_ID)
    ] == [
        "captions_train2014.json: image 1",
        "captions_train2014.json: annotation 1000",
    ]
    assert problems.names(Problem.MISSING_PHOTO)[0].endswith("image 99")
    assert [
        name.rsplit(" ", 1)[1] for name in problems.names(Problem.MALFORMED_LINE)
    ] == [
        "annotations:5",
        "annotations:6",
        "annotations:7",
    ]


def test_a_photo_in_both_annotation_files_is_in_no_split(tmp_path):
    folder = make_coco(tmp_path / "data", val=coco_json({**VAL, **TRAIN}, first=2))
    photos, problems = read_by_name(folder)
    assert "COCO_train2014_1.jpg" not in photos
    assert problems.names(Problem.TWO_SPLITS) == ["COCO_train2014_1.jpg"]


def test_coco_2017_is_read_by_its_names(tmp_path):
    folder = tmp_path / "data"
    train, val = {"000000000009.jpg": ["A man ."]}, {"000000000139.jpg": ["A cat ."]}
    for split, rows, first in (("train", train, 1), ("val", val, 100)):
        (name,) = rows
        make_file(folder / f"{split}2017" / name)
        annotations = folder / "annotations" / f"captions_{split}2017.json"
        make_file(annotations, coco_json(rows, first))
    photos = read_coco(DataFolder(folder, tmp_path / "prepared"))
    assert [(photo.id, photo.split, photo.captions) for photo in photos] == [
        ("000000000009.jpg", "train", ("A man .",)),
        ("000000000139.jpg", "val", ("A cat .",)),
    ]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lists", [False, True])
def test_kaggles_copy_of_flickr8k_is_read(tmp_path, packed, lists):
    names = ("dog.jpg", "cat.jpg", "hen.jpg", "cow.jpg")
    rows = [f"{name},A {name[:3]} runs .\n{name},It runs ." for name in names]
    texts = {"captions.txt": "\n".join(["image,caption", *rows]) + "\n"}
    if lists:
        known = flickr8k_texts()
        texts |= {name: known[name] for name in known if "Images" in name}
    files = {**{f"Images/{name}": JPEG for name in names}, **texts}
    folder = tmp_path / "data"
    if packed:
        make_zip(folder / "archive.zip", files)
    else:
        for name, content in files.items():
            make_file(folder / name, content)
    photos = read_flickr8k(DataFolder(folder, tmp_path / "prepared"))
    assert {photo.id for photo in photos} == set(names)
    assert photos[0].captions == ("A cat runs .", "It runs .")
    if lists:
        expected = dict(zip(names, ("train", "train", "val", "test"), strict=True))
    else:
        expected = {name: split_by_hash(name) for name in names}
    assert splits(photos) == expected


def test_names_in_lists_and_tokens_match_in_any_normal_form(tmp_path):
    composed, decomposed = "caf\u00e9.jpg", "cafe\u0301.jpg"
    make_file(tmp_path / "data" / decomposed)
    make_file(tmp_path / "data" / "Flickr8k.token.txt", f"{composed}#0\tA dog .\n")
    make_file(tmp_path / "data" / "Flickr_8k.trainImages.txt", f"{decomposed}\n")
    data = DataFolder(tmp_path / "data", tmp_path / "prepared")
    (photo,) = read_flickr8k(data)
    assert (photo.id, photo.split) == (composed, "train")
    assert photo.path.name == decomposed
    assert len(data.problems) == 0
