"""The everyday photos are found by id, by the digest of a caption and by name."""

import json

import pytest
from data_prep_files import JPEG, an_experiment, coco_json, make_file
from refusals import refused

from data_prep.prepare import prepare
from data_prep.sources import everyday
from data_prep.sources.everyday import caption_digest, read_list
from show_attend_tell.config.experiments import limit_experiment
from show_attend_tell.data.manifest import read_manifest
from show_attend_tell.evaluation.pointing import read_boxes
from show_attend_tell.runtime.errors import DataError

TRAIN = {
    "COCO_train2014_000000000009.jpg": ["A dog runs.", "The dog is wet."],
    "COCO_train2014_000000000025.jpg": ["Two giraffes eat.", "Giraffes and a tree!"],
    "COCO_train2014_000000000030.jpg": ["A vase of flowers."],
    "COCO_train2014_000000000034.jpg": ["A vase of flowers."],
}
VAL = {"COCO_val2014_000000000071.jpg": ["A train arrives."]}
LIST = f"""# a comment
val coco 71
train coco 9
train coco-caption {caption_digest("giraffes and a Tree")}
train coco-caption {caption_digest("a vase of flowers")}
train coco 99
train flickr30k 1000092795.jpg
train pascal 2008_003575.jpg
"""


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with a little of each data set, and a list of some of it."""
    folder = tmp_path / "data"
    for name in (*TRAIN, *VAL):
        make_file(folder / "coco" / "photos" / name, JPEG)
    make_file(folder / "coco" / "captions_train2014.json", coco_json(TRAIN))
    make_file(folder / "coco" / "captions_val2014.json", coco_json(VAL, first=71))
    make_file(folder / "flickr30k" / "1000092795.jpg", JPEG)
    make_file(
        folder / "flickr30k" / "results_20130124.token",
        "1000092795.jpg#0\tTwo friends talk .\n1000092795.jpg#1\tTwo men .\n",
    )
    make_file(folder / "pascal" / "cow" / "2008_003575.jpg", JPEG)
    make_file(folder / "pascal" / "sentence" / "2008_003575.txt", "A cow.\nA cow eats.")
    listed = make_file(tmp_path / "list.txt", LIST)
    monkeypatch.setattr(
        everyday, "read_list", lambda path=None: read_list(path or listed)
    )
    return folder


def prepared(data, tmp_path, **options):
    return prepare(an_experiment("everyday"), data, tmp_path / "work", **options)


def test_the_listed_photos_of_all_sources_have_all_their_captions(data, tmp_path):
    report = prepared(data, tmp_path)
    photos = read_manifest(tmp_path / "work" / "tiny" / "manifest.jsonl")
    found = {photo.id: (photo.split, list(photo.captions)) for photo in photos}
    assert found == {
        "COCO_val2014_000000000071.jpg": ("val", ["A train arrives."]),
        "COCO_train2014_000000000009.jpg": (
            "train",
            ["A dog runs.", "The dog is wet."],
        ),
        "COCO_train2014_000000000025.jpg": (
            "train",
            ["Two giraffes eat.", "Giraffes and a tree!"],
        ),
        "1000092795.jpg": ("train", ["Two friends talk .", "Two men ."]),
        "2008_003575.jpg": ("train", ["A cow.", "A cow eats."]),
    }
    notes = [note.split(",")[0] for note in report.problems.notes]
    # Id 99 is absent, and two photos share the caption of the vase.
    assert notes == [
        "coco: 1 listed photo left out",
        "coco-caption: 1 listed photo left out",
    ]


def test_without_flickr30k_and_pascal_the_others_are_prepared(data, tmp_path):
    for name in ("flickr30k", "pascal"):
        (data / name).rename(tmp_path / name)
    report = prepared(data, tmp_path)
    assert sum(counts["photos"] for counts in report.counts.values()) == 3
    assert any(note.startswith("pascal: 1 listed") for note in report.problems.notes)


VAL_IMAGE = {
    "id": 71,
    "file_name": "COCO_val2014_000000000071.jpg",
    "width": 200,
    "height": 100,
}
PERSON = {"image_id": 71, "category_id": 1}
BOX = {**PERSON, "bbox": [20, 10, 100, 50]}


def make_instances(data, *annotations, images=(VAL_IMAGE,)):
    content = json.dumps({"images": images, "annotations": annotations})
    return make_file(data / "coco" / "instances_val2014.json", content)


def boxes_file(tmp_path, name="tiny"):
    return tmp_path / "work" / name / "people_boxes.jsonl"


def test_boxes_of_people_are_those_of_validation_photos(data, tmp_path):
    other = {"file_name": "COCO_train2014_000000000009.jpg", "width": 10, "height": 10}
    make_instances(
        data,
        BOX,
        {"image_id": 71, "category_id": 18, "bbox": [0, 0, 9, 9]},  # a dog
        {"image_id": 9, "category_id": 1, "bbox": [0, 0, 9, 9]},
        images=[VAL_IMAGE, {"id": 9, **other}],
    )
    report = prepared(data, tmp_path, on_problem="refuse")
    assert json.loads(boxes_file(tmp_path).read_text()) == {
        "file": VAL_IMAGE["file_name"],
        "people": [[0.1, 0.1, 0.6, 0.6]],
    }
    assert any("boxes of people in 1 validation photo" in x for x in report.lines())


@pytest.mark.parametrize("bbox", [[1, 2], [1, 2, 3, "4"], [1, 2, 3, 10**400]])
def test_a_malformed_box_is_a_problem_of_the_preparation(data, tmp_path, bbox):
    make_instances(data, BOX, {**PERSON, "bbox": bbox})
    report = prepared(data, tmp_path)
    (problem,) = report.problems.names("malformed line")
    assert problem.endswith("instances_val2014.json: a box of 71")
    assert len(read_boxes(boxes_file(tmp_path), [VAL_IMAGE["file_name"]])) == 1
    (tmp_path / "work" / "tiny" / "manifest.jsonl").unlink()
    with refused(DataError, "refused because of 1 problem: malformed line"):
        prepared(data, tmp_path, on_problem="refuse")
    assert not (tmp_path / "work" / "tiny" / "manifest.jsonl").exists()


@pytest.mark.parametrize(
    "bbox",
    [
        [20, 10, 0.004, 50],  # equal after rounding
        [20, 100, 9, 9],  # below the photo
        [20, 10, -9, 9],
    ],
)
def test_a_box_without_area_is_left_out_and_counted(data, tmp_path, bbox):
    make_instances(data, {**PERSON, "bbox": bbox}, BOX)
    report = prepared(data, tmp_path, on_problem="refuse")
    boxes = read_boxes(boxes_file(tmp_path), [VAL_IMAGE["file_name"]])
    assert [*boxes.values()] == [[(0.1, 0.1, 0.6, 0.6)]]
    assert any("inside their photo: 1" in note for note in report.problems.notes)


def test_boxes_of_an_earlier_preparation_are_removed(data, tmp_path):
    instances = make_instances(data, BOX)
    prepared(data, tmp_path)
    assert boxes_file(tmp_path).exists()
    instances.unlink()
    prepared(data, tmp_path)
    assert not boxes_file(tmp_path).exists()


@pytest.fixture
def two_validation_photos(data, monkeypatch):
    """Photo 34 is a validation photo too, and comes before photo 71."""
    lines = [*everyday.read_list(), everyday.Listed("val", "coco", "34")]
    monkeypatch.setattr(everyday, "read_list", lambda: lines)
    first = {**VAL_IMAGE, "id": 34, "file_name": "COCO_train2014_000000000034.jpg"}
    images = [first, VAL_IMAGE]
    make_instances(data, BOX, {**BOX, "image_id": 34}, images=images)
    return [image["file_name"] for image in images]


@pytest.mark.parametrize("whole", [True, False])
def test_a_limited_set_has_the_boxes_of_its_own_photos(
    data, tmp_path, two_validation_photos, whole
):
    if whole:
        prepared(data, tmp_path)
        assert len(boxes_file(tmp_path).read_text().splitlines()) == 2
    limited = limit_experiment(an_experiment("everyday"), 1)
    report = prepare(limited, None if whole else data, tmp_path / "work", limit=1)
    assert {k: v["photos"] for k, v in report.counts.items()} == {"train": 1, "val": 1}
    boxes = read_boxes(boxes_file(tmp_path, "tiny-first-1"), two_validation_photos)
    assert [*boxes] == two_validation_photos[:1]


def test_a_limited_set_of_a_whole_one_without_boxes_has_none(data, tmp_path):
    prepared(data, tmp_path)
    limited = limit_experiment(an_experiment("everyday"), 1)
    prepare(limited, None, tmp_path / "work", limit=1)
    assert not boxes_file(tmp_path, "tiny-first-1").exists()


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"file": "a.jpg", "people": 3}', "\udcff"]
)
def test_malformed_boxes_of_the_whole_set_are_named(data, tmp_path, line):
    make_instances(data, BOX)
    prepared(data, tmp_path)
    make_file(boxes_file(tmp_path), line.encode("utf-8", "surrogateescape"))
    limited = limit_experiment(an_experiment("everyday"), 1)
    with refused(DataError, "tiny/people_boxes.jsonl.*prepare the whole data set agai"):
        prepare(limited, None, tmp_path / "work", limit=1)
    assert not (tmp_path / "work" / "tiny-first-1").exists()


def test_without_a_listed_photo_the_message_counts_what_is_absent(data, tmp_path):
    for photo in data.rglob("*.jpg"):
        photo.rename(photo.with_suffix(".packed"))
    message = "no photo of everyday_photos.txt .*coco: 3 listed photos left out.*; add"
    with refused(DataError, message):
        prepared(data, tmp_path)
    make_file(data / "another.jpg")
    with refused(DataError, message):
        prepared(data, tmp_path)


def test_without_cocos_annotations_the_message_says_where_they_are(data, tmp_path):
    (data / "coco" / "captions_val2014.json").unlink()
    with pytest.raises(DataError, match="captions_val2014.json must be in this folder"):
        prepared(data, tmp_path)


@pytest.mark.parametrize("line", ["train coco", "train imagenet 3", "val coco 3 4"])
def test_a_malformed_line_of_the_list_is_named(tmp_path, line):
    path = make_file(tmp_path / "list.txt", f"# head\n{line}\n")
    with pytest.raises(DataError, match=f"line 2: .*Received: '{line}'"):
        read_list(path)


def test_the_shipped_list_has_each_photo_once():
    listed = read_list()
    assert len(set(listed)) == len(listed)
    assert len({(source, key) for _, source, key in listed}) == len(listed)
    splits = [line.split for line in listed]
    assert (splits.count("val"), splits.count("train")) == (400, 44_690)
