"""Models and encoder weights that are accepted for captions, and those refused."""

import dataclasses
import os
from types import SimpleNamespace

import pytest
from refusals import refusal
from tiny_pipeline import ENCODER, make_captioner

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.encoder_identity import (
    PACKAGED_DIGEST,
    ROUNDED_DIGEST,
    identity_difference,
)
from show_attend_tell.inference.engine import matching_encoder
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.encoder import network, weights
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.pretrained import NAMES
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import (
    CaptionError,
    ModelFileError,
)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(ENCODER)


def save_weights(encoder, file):
    """Write the weights of an encoder as a file of its network."""
    weights.save_weights(encoder._network, file, encoder.settings.network)


def test_accepted_weights_are_used_if_the_file_is_absent(encoder, tmp_path):
    other = {"weights": "mine.safetensors", "weights_digest": "0" * 64}
    identity = encoder.identity() | other | {"accepts": {"none": "0" * 32}}
    make_captioner(encoder, identity).save(tmp_path / "model.safetensors")
    made = load(tmp_path / "model.safetensors").encoder
    assert made.identity() == encoder.identity()


def test_one_line_names_the_encoder_that_needs_keras(encoder, tmp_path, caplog):
    model = tmp_path / "model.safetensors"
    make_captioner(encoder).save(model)
    assert load(model).engine.is_keras
    (line,) = caplog.messages
    assert line.startswith("the encoder's weights 'none' of SceneNet need Keras")
    assert load(model, engine="keras").engine.is_keras
    assert caplog.messages == [line]
    refused = refusal(ModelFileError, load, model, engine="numpy")
    assert refused.startswith(f"{line}; pip install 'show-attend-tell[train]'")


def test_a_file_of_weights_is_found_beside_the_model_or_by_name(encoder, tmp_path):
    weights = tmp_path / "elsewhere" / "net.safetensors"
    weights.parent.mkdir()
    save_weights(encoder, weights)
    identity = encoder.identity() | {"weights": "net.safetensors"}
    model = tmp_path / "model.safetensors"
    make_captioner(encoder, identity).save(model)
    with pytest.raises(CaptionError, match="'net.safetensors'.* --encoder-weights"):
        load(model)
    named = load(model, weights).encoder
    os.replace(weights, tmp_path / "net.safetensors")
    beside = load(model).encoder
    assert named.identity() == beside.identity() == identity


def test_other_weights_are_refused_and_both_are_named(
    encoder, keras_pipeline, tmp_path
):
    other = Encoder(EncoderSettings("SceneNet", "annotations", "none", 32, seed=1))
    weights = tmp_path / "other.safetensors"
    save_weights(other, weights)
    message = refusal(CaptionError, load, keras_pipeline.file, weights)
    for text in ("'none'", "other.safetensors", "weights_digest", "--encoder-weights"):
        assert text in message
    assert encoder.identity()["weights_digest"][:12] in message
    assert other.identity()["weights_digest"][:12] in message


def test_a_model_that_names_no_encoder_is_refused(encoder, tmp_path):
    model = make_captioner(encoder, identity={"network": "SceneNet"})
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(CaptionError, match=r"must name the encoder .*\['network'\]"):
        load(tmp_path / "model.safetensors")


PACKAGED = EncoderSettings("VGG16", "block5_conv3", "imagenet_8bit", 32, "squash")


@pytest.fixture(scope="module")
def packaged() -> Encoder:
    return Encoder(PACKAGED)


def save_trained_with(packaged, file, weights, digest):
    """Save a model that was trained with other weights than the packaged ones."""
    identity = packaged.identity() | {"weights": weights, "weights_digest": digest}
    make_captioner(packaged, identity).save(file)


@pytest.mark.nightly
def test_the_packaged_weights_serve_a_model_of_the_weights_they_round(
    packaged, tmp_path
):
    model = tmp_path / "model.safetensors"
    save_trained_with(packaged, model, "vgg16.weights.h5", ROUNDED_DIGEST)
    assert load(model).encoder.identity() == packaged.identity()


@pytest.mark.nightly
def test_a_file_beside_the_model_comes_before_the_packaged_weights(packaged, tmp_path):
    model, digest = tmp_path / "model.safetensors", ROUNDED_DIGEST
    save_trained_with(packaged, model, "own.safetensors", digest)
    own = Encoder(dataclasses.replace(PACKAGED, weights="none"))
    save_weights(own, tmp_path / "own.safetensors")
    with pytest.raises(CaptionError, match="own.safetensors"):
        load(model)


def test_a_model_of_other_imagenet_weights_keeps_them(packaged, tmp_path, monkeypatch):
    model = tmp_path / "model.safetensors"
    save_trained_with(packaged, model, "imagenet", "ab" * 32)
    asked = []

    def record(settings):
        asked.append(settings.weights)
        raise ModelFileError("no network")

    monkeypatch.setattr(network, "Encoder", record)
    with pytest.raises(ModelFileError):
        load(model)
    assert asked == ["imagenet"]
    monkeypatch.undo()
    with pytest.raises(CaptionError, match="another encoder"):
        load(model, "imagenet_8bit")


def test_features_of_the_packaged_weights_stand_for_those_they_round(packaged):
    own = packaged.identity()
    rounded = own | {"weights_digest": ROUNDED_DIGEST}
    assert identity_difference(rounded, own) is None
    assert identity_difference(rounded, own, exact=True).startswith("weights_digest")
    assert identity_difference(own, rounded).startswith("weights_digest")


def test_a_model_of_the_packaged_weights_accepts_those_that_they_round(
    packaged, tmp_path
):
    file = tmp_path / "model.safetensors"
    save_trained_with(packaged, file, "imagenet_8bit", PACKAGED_DIGEST)
    model = load_captioner(file)

    def match():
        matching_encoder(
            model,
            file,
            "vgg16.weights.h5",
            lambda settings: SimpleNamespace(identity=lambda: dict(found)),
        )

    for digest, accepted in ((ROUNDED_DIGEST, True), ("ab" * 32, False)):
        found = packaged.identity() | {"weights_digest": digest}
        if accepted:
            match()
        else:
            with pytest.raises(CaptionError, match="another encoder"):
                match()


def test_captions_are_of_float32_annotations_on_any_machine(
    encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(network, "fastest_precision", lambda: "bfloat16")
    identity = encoder.identity() | {"precision": "bfloat16"}
    file = tmp_path / "model.safetensors"
    make_captioner(encoder, identity).save(file)
    assert load(file).engine.encoder.settings.precision == "float32"


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_models_need_no_download_and_no_option(name):
    assert load(name).engine.encoder.identity()["weights"] == "imagenet_8bit"
