"""Models and encoder weights that are accepted for captions, and those refused."""

import os

import pytest
from tiny_pipeline import ENCODER, make_captioner

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.runtime.errors import CaptionError, ModelFileError


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(ENCODER)


def test_the_file_restores_captioner_and_encoder(pipeline, encoder):
    captioner = make_captioner(encoder)
    assert pipeline.encoder.identity() == encoder.identity()
    assert pipeline.decoding() == captioner.decoding
    assert pipeline.captioner.vocabulary == captioner.vocabulary


def test_accepted_weights_are_used_if_the_file_is_absent(encoder, tmp_path):
    other = {"weights": "mine.weights.h5", "weights_digest": "0" * 64}
    identity = encoder.identity() | other | {"accepts": {"none": "0" * 32}}
    make_captioner(encoder, identity).save(tmp_path / "model.keras")
    made = load(tmp_path / "model.keras").encoder
    assert made.identity() == encoder.identity()


def test_a_file_of_weights_is_found_beside_the_model_or_by_name(encoder, tmp_path):
    weights = tmp_path / "elsewhere" / "net.weights.h5"
    weights.parent.mkdir()
    encoder._network.save_weights(weights)
    identity = encoder.identity() | {"weights": "net.weights.h5"}
    model = tmp_path / "model.keras"
    make_captioner(encoder, identity).save(model)
    with pytest.raises(CaptionError, match="'net.weights.h5'.* --encoder-weights"):
        load(model)
    named = load(model, weights).encoder
    os.replace(weights, tmp_path / "net.weights.h5")
    beside = load(model).encoder
    assert named.identity() == beside.identity() == identity


def test_other_weights_are_refused_and_both_are_named(encoder, pipeline, tmp_path):
    other = Encoder(EncoderSettings("SceneNet", "annotations", "none", 32, seed=1))
    weights = tmp_path / "other.weights.h5"
    other._network.save_weights(weights)
    with pytest.raises(CaptionError) as caught:
        load(pipeline.file, weights)
    message = str(caught.value)
    for text in ("'none'", "other.weights.h5", "weights_digest", "--encoder-weights"):
        assert text in message
    assert encoder.identity()["weights_digest"][:12] in message
    assert other.identity()["weights_digest"][:12] in message
    assert "\n" not in message


def test_a_model_that_names_no_encoder_is_refused(encoder, tmp_path):
    model = make_captioner(encoder, identity={"network": "SceneNet"})
    model.save(tmp_path / "model.keras")
    with pytest.raises(CaptionError, match=r"must name the encoder .*\['network'\]"):
        load(tmp_path / "model.keras")


def test_missing_and_damaged_models_are_refused_in_one_line(pipeline, tmp_path):
    damaged = tmp_path / "damaged.keras"
    damaged.write_bytes(pipeline.file.read_bytes()[:5000])
    for path in (tmp_path / "absent.keras", damaged):
        with pytest.raises(ModelFileError, match=path.name) as caught:
            load(path)
        assert "\n" not in str(caught.value)
