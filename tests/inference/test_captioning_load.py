"""Which models and encoder weights are taken for captions, and which are refused."""

import pytest
from speaking_captioner import ENCODER, make_captioner

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.inference.captioning import caption_paths, decoding_of, load
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.runtime.errors import CaptionError, ModelFileError


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(ENCODER)


@pytest.fixture(scope="module")
def captioner(encoder) -> Captioner:
    return make_captioner(encoder)


@pytest.fixture(scope="module")
def model_file(captioner, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    captioner.save(path)
    return path


def test_the_file_restores_captioner_and_encoder(model_file, encoder, captioner):
    loaded, made = load(model_file)
    assert made.identity() == encoder.identity()
    assert decoding_of(loaded) == decoding_of(captioner)
    assert loaded.vocabulary == captioner.vocabulary


def test_weights_that_the_model_accepts_serve_where_no_file_is_at_hand(
    encoder, captioner, tmp_path
):
    other = {"weights": "mine.weights.h5", "weights_digest": "0" * 64}
    identity = encoder.identity() | other | {"accepts": {"none": "0" * 32}}
    make_captioner(encoder, identity).save(tmp_path / "model.keras")
    _, made = load(tmp_path / "model.keras")
    assert made.identity() == encoder.identity()


def test_other_weights_are_refused_and_both_are_named(encoder, model_file, tmp_path):
    other = Encoder(EncoderSettings("SceneNet", "annotations", "none", 32, seed=1))
    weights = tmp_path / "other.weights.h5"
    other._network.save_weights(weights)
    with pytest.raises(CaptionError) as caught:
        load(model_file, weights)
    message = str(caught.value)
    for text in ("'none'", "other.weights.h5", "weights_digest", "--encoder-weights"):
        assert text in message
    assert encoder.identity()["weights_digest"][:12] in message
    assert other.identity()["weights_digest"][:12] in message
    assert "\n" not in message


def test_a_model_that_names_no_encoder_is_refused(encoder, tmp_path):
    model = make_captioner(encoder, identity={"network": "SceneNet"})
    model.save(tmp_path / "model.keras")
    with pytest.raises(CaptionError, match="does not tell which encoder"):
        load(tmp_path / "model.keras")


def test_missing_and_damaged_models_are_refused_in_one_line(model_file, tmp_path):
    damaged = tmp_path / "damaged.keras"
    damaged.write_bytes(model_file.read_bytes()[:5000])
    for path in (tmp_path / "absent.keras", damaged):
        with pytest.raises(ModelFileError, match=path.name) as caught:
            caption_paths(path, [])
        assert "\n" not in str(caught.value)
