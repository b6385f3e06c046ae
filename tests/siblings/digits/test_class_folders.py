"""The user's pictures: folders of classes, their splits, and their faults."""

import os
import sys
import unicodedata

import made_up_digits
import numpy as np
import pytest
from data_prep_files import make_file
from pictures import image_bytes
from PIL import Image
from refusals import refused

from data_prep.prepare import prepare
from data_prep.sources.tables import hash_order
from show_attend_tell.runtime.errors import DataError, ModelFileError
from show_attend_tell.siblings.digits.class_folders import (
    read_pictures,
    square_picture,
)
from show_attend_tell.siblings.digits.data import read_split
from show_attend_tell.siblings.digits.ram.evaluation import evaluate
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.training import train

CLASSES = ("bar", "dot", "été")


def experiment(**changes):
    data = {
        "source": "class_folders",
        "canvas": 32,
        "name": "own",
        **changes.pop("data", {}),
    }
    return made_up_digits.experiment(data=data, **changes)


def picture(number, mode="RGB", size=(40, 30)):
    """Return the bytes of a picture whose grey level tells its number."""
    return image_bytes(Image.new("L", size, number).convert(mode))


def make_classes(folder, count=10, classes=CLASSES):
    """Write pictures of any size, grey and in colour; level 60 k + n is class k."""
    for k, name in enumerate(classes):
        for n in range(count):
            mode = ("RGB", "L", "RGBA")[n % 3]
            content = picture(60 * k + n, mode, (20 + n, 50 - n))
            make_file(folder / name / f"{n}.png", content)
    return folder


def make_bars(folder, count=12, classes=CLASSES):
    """Write pictures that are bright in one third, another one for each class."""
    rng = np.random.default_rng(0)
    for k, name in enumerate(classes):
        for n in range(count):
            pixels = rng.integers(0, 40, (30, 30)).astype(np.uint8)
            pixels[:, 10 * k : 10 * k + 10] += 200
            make_file(folder / name / f"{n}.png", image_bytes(Image.fromarray(pixels)))
    return folder


def counts(report):
    return {split: count["pictures"] for split, count in report.counts.items()}


def test_classes_are_split_by_a_hash_and_each_trains_and_validates(tmp_path):
    folder = make_classes(tmp_path / "data")
    report = prepare(experiment(), folder, tmp_path)
    assert sum(counts(report).values()) == 30
    assert "3 classes: bar, dot, été" in "\n".join(report.lines())
    seen = {}
    for split in counts(report):
        data = read_split(experiment(), tmp_path, split)
        assert data.names == CLASSES
        assert data.images.shape == (counts(report)[split], 32, 32)
        levels = data.images[:, 16, 16]
        np.testing.assert_array_equal(levels // 60, data.labels)
        seen[split] = set(levels.tolist())
        if split != "test":
            assert set(data.labels.tolist()) == {0, 1, 2}
    assert len(set().union(*seen.values())) == 30
    digest = read_pictures(experiment(), tmp_path, "val").digest()
    prepare(experiment(), folder, tmp_path)
    assert read_pictures(experiment(), tmp_path, "val").digest() == digest
    least = make_classes(tmp_path / "least", count=2)
    assert counts(prepare(experiment(), least, tmp_path)) == {"train": 3, "val": 3}


def test_folders_of_splits_are_splits(tmp_path):
    for split in ("train", "Validation", "test"):
        make_classes(tmp_path / "data" / split, 4, CLASSES[:2])
    make_file(tmp_path / "data" / "test" / "new" / "0.png", picture(0))
    report = prepare(experiment(), tmp_path / "data", tmp_path)
    assert counts(report) == {"train": 8, "val": 8, "test": 8}
    assert "without training pictures: 1 (test/new/0.png)" in "\n".join(report.lines())
    # Without a folder val, a part of train validates; `train` may also be a class.
    make_classes(tmp_path / "more" / "train", 4, CLASSES[:2])
    report = prepare(experiment(), tmp_path / "more", tmp_path)
    assert sum(counts(report).values()) == 8
    assert counts(report)["val"] >= 2
    vehicles = make_classes(tmp_path / "vehicles", 4, ("train", "bus", "test"))
    prepare(experiment(), vehicles, tmp_path)
    names = read_split(experiment(), tmp_path, "train").names
    assert names == ("bus", "test", "train")


def test_a_class_has_one_name_however_its_accent_is_written(tmp_path):
    for split, form in (("train", "NFC"), ("val", "NFD")):
        names = [unicodedata.normalize(form, name) for name in CLASSES]
        make_classes(tmp_path / "data" / split, 4, names)
    report = prepare(experiment(), tmp_path / "data", tmp_path)
    assert counts(report) == {"train": 12, "val": 12}
    assert read_split(experiment(), tmp_path, "val").names == CLASSES


@pytest.mark.skipif(sys.platform != "linux", reason="its names are bytes")
def test_names_that_are_not_utf_8_are_escaped_in_the_file_of_the_model(tmp_path):
    latin = os.fsdecode("gar\u00e7on".encode("latin-1"))
    folder = make_classes(tmp_path / "data", 4, (latin, "b"))
    make_file(folder / "b" / f"{latin}.png", picture(9))
    assert sum(counts(prepare(experiment(), folder, tmp_path)).values()) == 9
    names = read_split(experiment(), tmp_path, "train").names
    assert names == ("b", "gar\\udce7on")
    model = CLASSIFIERS.build(experiment(), classes=2, names=names)
    model.save(tmp_path / "model.safetensors")
    assert CLASSIFIERS.load(tmp_path / "model.safetensors").names == names


def test_a_limit_keeps_pictures_of_each_split(tmp_path):
    folder = make_classes(tmp_path / "data", count=20)
    report = prepare(experiment(), folder, tmp_path, limit=3)
    assert counts(report)["train"] == counts(report)["val"] == 3
    assert sorted(read_split(experiment(), tmp_path, "val").labels) == [0, 1, 2]
    report = prepare(experiment(), folder, tmp_path, limit=2)
    assert read_split(experiment(), tmp_path, "train").names == CLASSES[:2]
    with refused(DataError, "`limit` must leave .* two classes. Received: 1; raise"):
        prepare(experiment(), folder, tmp_path, limit=1)


def test_pictures_with_problems_are_skipped_and_named(tmp_path):
    folder = make_classes(tmp_path / "data")
    make_file(folder / "bar" / "text.png", "no picture")
    make_file(folder / "outside.png", picture(0))
    make_file(folder / "bar" / "notes.txt", "not a picture by its name")
    report = prepare(experiment(), folder, tmp_path)
    text = "\n".join(report.lines())
    assert "picture that cannot be read: 1 (bar/text.png)" in text
    assert "outside of the folders of classes: 1 (outside.png)" in text
    assert "notes.txt" not in text
    before = (tmp_path / "own" / "pictures.npz").read_bytes()
    with refused(DataError, "refused because of 2 problems"):
        prepare(experiment(), folder, tmp_path, on_problem="refuse")
    assert (tmp_path / "own" / "pictures.npz").read_bytes() == before


def test_a_class_whose_validation_picture_cannot_be_read_is_noted(tmp_path):
    folder = make_classes(tmp_path / "data")
    first = hash_order(["new/0.png", "new/1.png"])[0]  # validates
    for name in ("new/0.png", "new/1.png"):
        make_file(folder / name, "no picture" if name == first else picture(9))
    lines = prepare(experiment(), folder, tmp_path).lines()
    assert [line for line in lines if "no picture of 'new' validates" in line]
    with refused(DataError, "refused because of 1 problem:"):
        prepare(experiment(), folder, tmp_path, on_problem="refuse")


@pytest.mark.parametrize(
    ("classes", "further", "message"),
    [
        (("bar",), {}, "each of 2 to 1000 classes. Received: 'bar'; name the folder a"),
        ((), {}, "classes. Received: none; name the folder above"),
        ((), {"a.png": b""}, "Received: none; skipped: picture outside .*a.png"),
        (
            CLASSES,
            {"single/0.png": picture(0)},
            "must have two pictures or more, .* Received: one of 'single'; add",
        ),
        (
            CLASSES,
            {"new/0.png": b"", "new/1.png": b""},
            "no training picture of 'new' can be read; skipped: picture that can",
        ),
    ],
)
def test_folders_without_enough_pictures_are_refused(
    tmp_path, classes, further, message
):
    folder = make_classes(tmp_path / "data", classes=classes)
    folder.mkdir(exist_ok=True)
    for name, content in further.items():
        make_file(folder / name, content)
    with refused(DataError, message):
        prepare(experiment(), folder, tmp_path)
    assert not (tmp_path / "own" / "pictures.npz").exists()
    with refused(DataError, "no such folder; name the folder of the classes"):
        prepare(experiment(), tmp_path / "absent", tmp_path)


def test_a_picture_keeps_its_proportions_on_a_ground_of_its_border():
    image = Image.new("RGB", (80, 20), (255, 0, 0))
    square = square_picture(image, 40)
    assert square.shape == (40, 40)
    assert set(square.ravel().tolist()) == {76}  # the luma of red
    wide = np.zeros((20, 80), np.uint8)
    wide[5:15, 20:60] = 200
    square = square_picture(Image.fromarray(wide), 40)
    assert square[20, 20] == 200
    assert square[:14].max() == square[26:].max() == 0
    assert square_picture(Image.new("L", (1, 1), 9), 30).tolist() == [[9] * 30] * 30


def test_absent_damaged_and_other_pictures_are_named(tmp_path):
    with refused(DataError, "pictures.npz: no such file; run `prepare` first"):
        read_split(experiment(), tmp_path, "train")
    prepare(experiment(), make_classes(tmp_path / "data", 2), tmp_path)
    with refused(DataError, "has no test pictures; choose --split val"):
        read_split(experiment(), tmp_path, "test")
    with refused(DataError, "data.canvas = 48 pixels. Received: 32 x 32; run `prepare"):
        read_split(experiment(data={"canvas": 48}), tmp_path, "train")
    path = tmp_path / "own" / "pictures.npz"
    content = path.read_bytes()
    for damaged in (b"", content[:40], content[:-30]):
        path.write_bytes(damaged)
        with refused(DataError, "pictures.npz: "):
            read_split(experiment(), tmp_path, "train")
    with refused(ValueError, "clutter must go with source = 'mnist'"):
        experiment(data={"clutter": 3})


def test_a_classifier_of_own_pictures_is_trained_and_measured(tmp_path):
    prepare(experiment(), make_bars(tmp_path / "data"), tmp_path)
    own = experiment(
        classifier={"widths": [12]}, training={"epochs": 12, "learning_rate": 0.01}
    )
    done = train(own, tmp_path, tmp_path / "runs", progress=False)
    model = CLASSIFIERS.load(done.model, own)
    assert (model.names, model.classes) == (CLASSES, 3)
    scores = evaluate(own, tmp_path, tmp_path / "runs", split="val").scores
    assert scores["error"] == pytest.approx(100 - done.best)
    assert done.best > 60  # 33 of a guess
    others = make_bars(tmp_path / "others", classes=("a", "b", "c"))
    prepare(own, others, tmp_path)
    with refused(ModelFileError, "trained with other classes than the prepared"):
        evaluate(own, tmp_path, tmp_path / "runs", split="val")


@pytest.mark.nightly
def test_glimpses_of_own_pictures_are_drawn_with_their_names(tmp_path):
    prepare(experiment(), make_bars(tmp_path / "data"), tmp_path)
    train(experiment(), tmp_path, tmp_path / "runs", progress=False)
    report = evaluate(experiment(), tmp_path, tmp_path / "runs", split="val")
    assert [path.name for path in report.figures] == ["glimpses.png", "glimpses.gif"]
