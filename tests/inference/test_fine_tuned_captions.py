"""Captions of models that carry convolutions: pipeline, ensembles, eval, exports."""

import io

import numpy as np
import pytest
import tensorflow as tf
from tiny_fine_tuning import FIRST, VGG
from tiny_pipeline import make_captioner, photo_bytes

import show_attend_tell as sat
from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.deployment.exports.graphs import export_saved_model
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import CaptionError, ModelFileError


@pytest.fixture(scope="module")
def frozen():
    """A captioner that reads the network's last layer, and its encoder."""
    encoder = Encoder(EncoderSettings(**VGG))
    model = make_captioner(encoder)
    model.set_annotation_scale(0.05)
    return model, encoder


@pytest.fixture(scope="module")
def files(frozen, tmp_path_factory):
    """The files of the frozen captioner, and of one that convolves by itself."""
    folder, (model, _) = tmp_path_factory.mktemp("models"), frozen
    encoder = Encoder(EncoderSettings(**VGG, trainable_from=FIRST))
    config = {**model.get_config(), "convolutions": [FIRST]}
    tuned = Captioner.from_config(config | {"encoder_identity": encoder.identity()})
    for ours, theirs in zip(tuned.weights, model.weights, strict=False):
        ours.assign(theirs)
    for ours, theirs in zip(
        tuned.convolutions.weights, encoder.trainable_weights[FIRST], strict=True
    ):
        ours.assign(theirs)
    model.save(folder / "frozen.keras")
    tuned.save(folder / "tuned.keras")
    return folder / "frozen.keras", folder / "tuned.keras"


def test_the_trunk_and_the_models_own_convolutions_give_the_same_captions(files):
    pipelines = [sat.load(file) for file in files]
    assert [p.encoder.settings.layer for p in pipelines] == [
        "block5_conv3",
        "block5_conv2",
    ]
    for seed in range(3):
        ours, theirs = (p.caption(photo_bytes(seed)) for p in pipelines)
        assert ours.words == theirs.words
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=0.02)
        np.testing.assert_allclose(ours.attention, theirs.attention, atol=0.02)


def test_an_ensemble_of_both_kinds_is_refused_in_one_line(files):
    with pytest.raises(ModelFileError, match="layer block5_conv2 instead of") as error:
        sat.load(list(files))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_fine_tuned_models_and_mirrored_photos_are_averaged(files):
    photo = photo_bytes(5)
    ours = sat.load([files[1], files[1]], mirror=True).caption(photo)
    theirs = sat.load(files[0], mirror=True).caption(photo)
    assert ours.words == theirs.words
    assert ours.log_prob == pytest.approx(theirs.log_prob, abs=0.02)


def test_another_trunk_is_refused_in_one_line(files, tmp_path):
    other = Encoder(EncoderSettings(**VGG, seed=1))
    weights = tmp_path / "other.weights.h5"
    other._network.save_weights(weights)
    with pytest.raises(CaptionError, match="another encoder .weights_digest") as error:
        sat.load(files[1], weights)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_an_export_contains_the_convolutions(files, tmp_path):
    photo = photo_bytes(3, "JPEG", quality=95)
    expected = sat.load(files[1]).caption(photo)
    export_saved_model(files[1], tmp_path / "out")
    module = tf.saved_model.load(str(tmp_path / "out"))
    pixels = np.asarray(load_photo(io.BytesIO(photo)))
    outputs = module.signatures["serving_default"](tf.constant(pixels))
    assert outputs["caption"].numpy().decode() == expected.text
    assert float(outputs["log_prob"]) == pytest.approx(expected.log_prob, abs=0.05)
