import logging

import numpy as np
import pytest
from tiny_run import IDENTITY, experiment, prepare

from show_attend_tell.data import manifest
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.splits import folder_of, load_split, open_features
from show_attend_tell.runtime.errors import FeatureError, ManifestError


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"), mirror=True)


def test_the_folder_is_named_by_the_data(tmp_path):
    assert folder_of(experiment(), tmp_path) == tmp_path / "made-up"


def test_a_split_holds_its_photos_rows_and_words(work):
    with open_features(experiment(), work, identity=IDENTITY) as reader:
        split = load_split(experiment(), work, "val", reader)
        assert split.name == "val"
        assert [photo.id for photo in split.photos] == [
            f"photo-{k}" for k in range(12, 16)
        ]
        np.testing.assert_array_equal(split.rows, [12, 13, 14, 15])
        assert split.captions[1] == [["a", "green", "square"], ["a", "square"]]
        assert [reader.image_ids[row] for row in split.rows] == [
            photo.id for photo in split.photos
        ]


def test_rows_are_found_by_id_whatever_their_order(work):
    with open_features(experiment(), work, mirror=True) as reader:
        split = load_split(experiment(), work, "train", reader)
        np.testing.assert_array_equal(split.rows, range(11, -1, -1))


def test_photos_without_caption_or_features_are_left_out_and_counted(tmp_path, caplog):
    work = prepare(tmp_path)
    path = folder_of(experiment(), work) / "manifest.jsonl"
    extra = [
        Photo("bare", "a.png", "val", []),
        Photo("new", "b.png", "val", ["A dog."]),
    ]
    manifest.write(path, [*manifest.read(path), *extra])
    with (
        open_features(experiment(), work) as reader,
        caplog.at_level(logging.WARNING),
    ):
        split = load_split(experiment(), work, "val", reader)
    assert len(split.photos) == 4
    assert "2 photos of val left out" in caplog.text


def test_an_empty_split_is_refused_by_one_line(work):
    with open_features(experiment(), work) as reader:
        with pytest.raises(ManifestError, match="split 'test' has no photo") as caught:
            load_split(experiment(), work, "test", reader)
    assert "\n" not in str(caught.value)


def test_features_of_another_encoder_are_refused(work):
    with pytest.raises(FeatureError, match="layer last instead of first"):
        open_features(experiment(), work, identity={**IDENTITY, "layer": "first"})


def test_features_that_are_absent_are_refused(tmp_path):
    with pytest.raises(FeatureError, match="no such feature file"):
        open_features(experiment(), tmp_path)
