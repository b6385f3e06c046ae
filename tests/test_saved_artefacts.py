"""Files written by version 0.1.0 still load and give the results of that version.

``artefacts/version_0_1`` holds prepared data of 16 photos, a run ``tiny`` with soft
attention, interrupted after 500 of 600 updates, a finished run ``tiny-hard``, and
``captions.json``: the caption and log-probability of each photo by run.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from show_attend_tell.config.runs import MODEL, SETTINGS
from show_attend_tell.config.settings import DecodingSettings, read_experiment_file
from show_attend_tell.data.manifest import read_manifest
from show_attend_tell.data.splits import load_splits, open_features
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.models.pretrained import FLICKR8K_LSTM
from show_attend_tell.models.saving import load_captioner

OLD = Path(__file__).parent / "artefacts" / "version_0_1"
PREPARED, RUNS = OLD / "prepared", OLD / "runs"
CAPTIONS = json.loads((OLD / "captions.json").read_text(encoding="utf-8"))
NAMES = sorted(CAPTIONS)


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


@pytest.fixture
def eager():
    """Run functions of TensorFlow without compiling them, which takes longer here."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", NAMES)
def test_models_give_the_kept_captions(name):
    model = load_captioner(RUNS / name / MODEL)
    with open_features(
        experiment_of(name), PREPARED, identity=model.encoder_identity
    ) as reader:
        features = reader.read(range(16))
    found = model.generate(features, DecodingSettings(beam=2, max_words=6))
    texts = [" ".join(model.vocabulary.decode(ids)) for ids in found.tokens[:, 0]]
    captions, log_probs = zip(*CAPTIONS[name], strict=True)
    assert tuple(texts) == captions
    np.testing.assert_allclose(found.log_probs[:, 0], log_probs, atol=1e-4)


def test_the_pretrained_model_loads_under_its_registered_name():
    with zipfile.ZipFile(FLICKR8K_LSTM) as archive:
        config = json.loads(archive.read("config.json"))
    assert config["registered_name"] == "show_attend_tell>Captioner"
    assert config["module"] == "show_attend_tell.captioner"  # of version 0.1.0
    model = load_captioner(FLICKR8K_LSTM)
    assert model.encoder_identity["network"] == "VGG16"
    assert len(model.vocabulary) == len(config["config"]["vocabulary"])
