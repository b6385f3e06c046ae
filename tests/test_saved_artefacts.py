"""Prepared data and settings written by version 0.1.0 still load.

``artefacts/version_0_1`` holds prepared data of 16 photos, a run ``tiny`` with soft
attention and a run ``tiny-hard``.
"""

from pathlib import Path

import pytest

from show_attend_tell.config.runs import SETTINGS
from show_attend_tell.config.settings import read_experiment_file
from show_attend_tell.data.manifest import read_manifest
from show_attend_tell.data.splits import load_splits, open_features
from show_attend_tell.data.vocabulary import Vocabulary

OLD = Path(__file__).parent / "artefacts" / "version_0_1"
PREPARED, RUNS = OLD / "prepared", OLD / "runs"
NAMES = ["tiny", "tiny-hard"]


def experiment_of(name):
    return read_experiment_file(RUNS / name / SETTINGS)


def test_the_manifest_and_the_vocabulary_load():
    photos = read_manifest(PREPARED / "made-up" / "manifest.jsonl")
    assert [photo.id for photo in photos] == [f"photo-{k:02d}" for k in range(16)]
    assert [photo.split for photo in photos] == ["train"] * 12 + ["val"] * 4
    assert photos[1].captions == ("a green circle", "A circle.")
    assert all(photo.path.is_file() for photo in photos)
    vocabulary = Vocabulary.load(PREPARED / "made-up" / "vocabulary.json")
    words = ["a", "circle", "square", "star", "blue", "green", "red"]
    assert sorted(vocabulary.words[4:]) == sorted(words)


@pytest.mark.parametrize("name", NAMES)
def test_the_settings_load_and_open_features_and_splits(name):
    experiment = experiment_of(name)
    assert experiment.name == name
    assert experiment.model.attention == ("hard" if "hard" in name else "soft")
    with open_features(experiment, PREPARED) as reader:
        assert reader.shape == (16, 6, 5)
        assert len(reader.rows) == 16
        splits = load_splits(experiment, PREPARED, ("train", "val"), reader)
    assert [len(split.photos) for split in splits] == [12, 4]
