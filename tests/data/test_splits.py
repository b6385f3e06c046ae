"""Splits and features of an experiment: photos, rows and refused feature files."""

import logging

import numpy as np
import pytest
from refusals import refusal, refused
from tiny_run import IDENTITY, experiment, prepare, write_features

from show_attend_tell.data.features import FeatureReader, feature_path
from show_attend_tell.data.manifest import Photo, read_manifest, write_manifest
from show_attend_tell.data.splits import (
    ViewsReader,
    folder_of,
    load_splits,
    open_features,
    open_mirror,
    read_photos,
    vocabulary_path,
)
from show_attend_tell.runtime.errors import DataError


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"), mirror=True)


def test_a_split_holds_its_photos_rows_and_words(work):
    with open_features(experiment(), work, identity=IDENTITY) as reader:
        (split,) = load_splits(experiment(), work, ["val"], reader)
        assert split.name == "val"
        assert [photo.id for photo in split.photos] == [
            f"photo-{k}" for k in range(12, 16)
        ]
        np.testing.assert_array_equal(split.rows, [12, 13, 14, 15])
        assert split.captions[1] == [["a", "green", "square"], ["a", "square"]]
        assert [reader.image_ids[row] for row in split.rows] == [
            photo.id for photo in split.photos
        ]
        keep = experiment(data={"punctuation": "keep"})
        (kept,) = load_splits(keep, work, ["val"], reader)
        assert kept.captions[1] == [["a", "green", "square"], ["a", "square", "."]]


def test_rows_are_found_by_id_whatever_their_order(work):
    with open_features(experiment(), work, "train") as reader:
        (split,) = load_splits(experiment(), work, ["train"], reader)
        np.testing.assert_array_equal(split.rows, range(11, -1, -1))


def test_views_are_the_photo_and_its_mirror_image(work):
    with (
        open_features(experiment(), work) as reader,
        open_features(experiment(), work, "train") as mirror,
    ):
        views = ViewsReader(reader, mirror).read([3, 5])
        photos, mirrored = reader.read([3, 5]), mirror.read([3, 5])
    assert views.shape == (2, 2, *photos.shape[1:])
    np.testing.assert_array_equal(views[:, 0], photos)
    np.testing.assert_array_equal(views[:, 1], mirrored)
    assert not np.array_equal(photos, mirrored)


def test_photos_without_caption_or_features_are_left_out_and_counted(tmp_path, caplog):
    work = prepare(tmp_path)
    path = folder_of(experiment(), work) / "manifest.jsonl"
    extra = [
        Photo("bare", "a.png", "val", []),
        Photo("new", "b.png", "val", ["A dog."]),
    ]
    write_manifest(path, [*read_manifest(path), *extra])
    with (
        open_features(experiment(), work) as reader,
        caplog.at_level(logging.WARNING),
    ):
        (split,) = load_splits(experiment(), work, ["val"], reader)
    assert len(split.photos) == 4
    assert "2 photos of val left out" in caplog.text


@pytest.fixture
def identified(tmp_path):
    """Prepare features of an identity and open them with some settings."""

    def open_with(identity: dict, **settings):
        work = prepare(tmp_path, identity={**IDENTITY, **identity})
        return open_features(experiment(encoder=settings), work)

    return open_with


MADE = {"weights": "imagenet", "image_size": 224, "resize": "squash", "seed": 0}


@pytest.mark.parametrize(
    ("identity", "settings", "difference"),
    [
        ({}, {"resize": "crop"}, "resize squash instead of crop"),
        ({"image_size": 112}, {}, "image_size 112 instead of 224"),
        ({"network": "VGG16"}, {}, "network VGG16 instead of Tiny"),
        ({"layer": "first"}, {}, "layer first instead of last"),
        ({}, {"weights": "none"}, "weights imagenet instead of none"),
        ({"weights": "none"}, {"weights": "none", "seed": 3}, "seed 0 instead of 3"),
    ],
)
def test_features_of_other_encoder_settings_are_refused_in_one_line(
    identified, identity, settings, difference
):
    settings = {"resize": "squash"} | settings
    message = refusal(DataError, identified, MADE | identity, **settings)
    assert f"[encoder]: {difference}; run `features --overwrite`" in message
    assert "drop the --set" in message


@pytest.mark.parametrize(
    ("identity", "settings"),
    [
        ({}, {}),
        ({"precision": "bfloat16"}, {"precision": "float32"}),
        ({"weights": "vgg19_notop.h5"}, {"weights": "imagenet"}),
        ({"weights": "notop.h5"}, {"weights": "folder/other.h5"}),
        ({"weights": "imagenet"}, {"weights": "folder/notop.h5"}),
        ({}, {"seed": 3}),
        ({}, {"mirror": True}),
    ],
)
def test_precision_and_the_file_of_weights_may_differ(identified, identity, settings):
    identified(MADE | identity, **{"resize": "squash"} | settings).close()


def test_unmirrored_features_in_the_mirrored_file_are_refused(tmp_path):
    work = prepare(tmp_path, mirror=True)
    folder, encoder = folder_of(experiment(), work), experiment().encoder
    plain, mirrored = (feature_path(folder, encoder, m) for m in (None, "train"))
    mirrored.write_bytes(plain.read_bytes())
    with pytest.raises(DataError, match="mirrored photos False instead of True"):
        open_features(experiment(), work, "train")


SETS = experiment(data={"also": {"more": 0.5}})


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Prepare two data sets with equal ids and other features."""
    work = prepare(tmp_path_factory.mktemp("two"), mirror=True)
    return prepare(work, mirror=True, name="more", seed=4)


def values_of(work, name, mirrored=None):
    """Return id -> features of one data set."""
    path = feature_path(work / name, experiment().encoder, mirrored)
    with FeatureReader(path) as reader:
        rows = reader.rows
        return dict(zip(rows, reader.read(list(rows.values())), strict=True))


@pytest.mark.parametrize("mirrored", [None, "train"])
def test_several_data_sets_are_read_as_one(two, mirrored):
    with open_features(SETS, two, identity=IDENTITY) as plain:
        (split,) = load_splits(SETS, two, ["train"], plain)
        reader = open_mirror(SETS, two, plain, split) if mirrored else plain
        read = reader.read(split.rows[::-1])[::-1]
        reader.close()
    ids = [f"photo-{k:02d}" for k in range(12)]
    assert [photo.id for photo in split.photos] == ids + [f"more/{k}" for k in ids]
    np.testing.assert_array_equal(split.weights, [1.0] * 12 + [0.5] * 12)
    expected = [
        values_of(two, name, mirrored)[photo]
        for name in ("made-up", "more")
        for photo in ids
    ]
    np.testing.assert_array_equal(read, expected)
    assert [photo.path.parent.name for photo in split.photos[11:13]] == [
        "made-up",
        "more",
    ]


def test_a_photo_of_several_sets_without_a_mirror_image_is_refused(two):
    with open_features(SETS, two, identity=IDENTITY) as plain:
        train, val = load_splits(SETS, two, ["train", "val"], plain)
        with open_mirror(SETS, two, plain, train) as mirror:
            mirror.read(train.rows[:1])
            with refused(DataError, "`rows` must be of photos that have features"):
                mirror.read(val.rows[:1])


def test_a_split_is_the_union_of_the_sets_that_have_it(tmp_path):
    work = prepare(tmp_path)
    prepare(work, name="more")
    path = work / "more" / "manifest.jsonl"
    photos = [p for p in read_manifest(path) if p.split == "train"]
    write_manifest(path, [*photos, Photo("new", "b.png", "test", ["A dog."])])
    with open_features(SETS, work) as reader:
        assert len(load_splits(SETS, work, ["val"], reader)[0].photos) == 4
    assert len(read_photos(SETS, work)) == 16 + 12 + 1


@pytest.mark.parametrize("without", ["made-up", "more"])
def test_a_set_may_have_no_mirrored_photo_of_the_split(tmp_path, without):
    work = prepare(tmp_path, mirror=True)
    prepare(work, mirror=True, name="more", seed=4)
    path = work / without / "manifest.jsonl"
    write_manifest(path, [p for p in read_manifest(path) if p.split != "train"])
    feature_path(work / without, experiment().encoder, "train").unlink()
    with open_features(SETS, work) as reader:
        (split,) = load_splits(SETS, work, ["train"], reader)
        with open_mirror(SETS, work, reader, split) as mirror:
            read = mirror.read(split.rows)
    (other,) = {"made-up", "more"} - {without}
    values = values_of(work, other, "train")
    expected = [values[photo.id.removeprefix("more/")] for photo in split.photos]
    np.testing.assert_array_equal(read, expected)


def test_the_vocabulary_of_several_sets_is_a_file_of_its_own(tmp_path):
    also = {"more": 1, "b": 2}
    for punctuation, name in (("drop", "vocabulary"), ("keep", "vocabulary-keep")):
        sets = experiment(data={"also": also, "punctuation": punctuation})
        path = vocabulary_path(sets, tmp_path)
        assert path == tmp_path / "made-up" / f"{name}+b+more.json"


def change_encoder(work):
    (work / "more" / "features-Tiny-last.h5").unlink()
    features = np.ones((1, 6, 5), np.float16)
    write_features(work / "more", ["photo-00"], features, False, {**IDENTITY, "x": 1})


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (
            lambda work: (work / "more" / "features-Tiny-last.h5").unlink(),
            DataError,
            r"more/features-Tiny-last\.h5: no such feature file",
        ),
        (change_encoder, DataError, "made by another encoder: x 1 instead of none"),
        (
            lambda work: (work / "more" / "manifest.jsonl").unlink(),
            DataError,
            r"more/manifest\.jsonl: no such manifest; prepare the data",
        ),
        (
            lambda work: write_manifest(
                work / "made-up" / "manifest.jsonl",
                [Photo("more/photo-00", "a.png", "train", ["A dog."])],
            ),
            DataError,
            "a photo becomes 'more/photo-00', the id of another photo",
        ),
    ],
)
def test_a_set_that_is_absent_or_does_not_fit_is_named_in_one_line(
    tmp_path, damage, error, message
):
    work = prepare(tmp_path)
    prepare(work, name="more")
    damage(work)
    with refused(error, message):
        with open_features(SETS, work) as reader:
            load_splits(SETS, work, ["train"], reader)


def test_mirrored_photos_of_a_set_that_are_absent_are_named(tmp_path):
    work = prepare(tmp_path, mirror=True)
    prepare(work, name="more")
    with open_features(SETS, work) as reader:
        (split,) = load_splits(SETS, work, ["train"], reader)
        with pytest.raises(DataError, match="the first is more/photo-00"):
            open_mirror(SETS, work, reader, split)
