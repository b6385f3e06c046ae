"""Model files in float16: size, values, errors, accepted encoder weights."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest
import tiny_captioner
import tiny_transformer
from keras.src.applications import vgg16, vgg19
from shell import exit_code
from tensor_files import unpacked

from show_attend_tell.data.encoder_identity import identity_difference, is_accepted
from show_attend_tell.deployment.exports.half_precision import (
    KERAS_FILES,
    save_half,
)
from show_attend_tell.models import pretrained
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError


@pytest.fixture
def source(rng, tmp_path):
    identity = {"network": "VGG16", "weights": "mine.h5", "weights_digest": "abc"}
    model = tiny_captioner.build(rng, {"encoder_identity": identity})
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("eight_bit", [False, True])
@pytest.mark.parametrize(
    ("design", "settings"),
    [
        (tiny_captioner, {"attention_layers": 2}),
        (tiny_transformer, {"encoder_layers": 1}),
    ],
)
def test_weights_are_rounded_to_float16_or_to_8_bits_with_a_scale_per_channel(
    rng, tmp_path, design, settings, eight_bit
):
    model = design.build(rng, **settings)
    model.set_annotation_scale(7.0)
    model.decoder.weights[0].assign(0 * model.decoder.weights[0])
    model.save(tmp_path / "model.safetensors")
    small = tmp_path / "new" / "small.safetensors"
    size = save_half(tmp_path / "model.safetensors", small, eight_bit=eight_bit)
    loaded = load_captioner(small)
    assert size == small.stat().st_size
    assert loaded.get_config() | {"name": ""} == model.get_config() | {"name": ""}
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        w, found = np.asarray(ours, float), np.asarray(theirs)
        assert found.dtype == np.float32
        if w.ndim > 1 and eight_bit:
            step = np.abs(w).max(axis=tuple(range(w.ndim - 1))) / 127
            expected = np.rint(w / np.where(step, step, 1)) * step
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
            assert (np.abs(found - w) <= 0.501 * step).all()
        else:
            expected = w.astype(np.float16) if w.ndim else w
            np.testing.assert_array_equal(found, expected)


def test_the_file_stores_one_byte_per_weight_of_a_matrix(source, tmp_path):
    assert stored_types(source, tmp_path, eight_bit=False) == {2: np.float16}
    assert stored_types(source, tmp_path, eight_bit=True) == {2: np.int8}


def stored_types(source, tmp_path, eight_bit):
    """Return number of axes -> dtype of the matrices in an exported file."""
    save_half(source, tmp_path / "one", eight_bit=eight_bit)
    _, arrays = unpacked(tmp_path / "one")
    return {x.ndim: x.dtype for x in arrays.values() if x.ndim > 1}


def test_a_weight_too_large_is_refused_and_nothing_is_written(rng, tmp_path):
    model = tiny_captioner.build(rng)
    model.decoder.w_h.assign(np.full(model.decoder.w_h.shape, 1e6))
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match="below 65504.*Received: 1e.06 in"):
        save_half(tmp_path / "model.safetensors", tmp_path / "half.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_accepted_weights_are_recorded_in_the_file(source, tmp_path):
    save_half(source, tmp_path / "half.safetensors", imagenet=True)
    identity = load_captioner(tmp_path / "half.safetensors").encoder_identity
    assert is_accepted(identity, "imagenet")
    assert not is_accepted(identity, "none")
    file = tmp_path / "notop.safetensors"
    assert not is_accepted(identity, file)
    assert not is_accepted(identity, file, "another MD5")
    assert is_accepted(identity, file, KERAS_FILES["VGG16"])
    assert not is_accepted({}, "imagenet")
    assert not is_accepted({}, file, None)
    plain = {key: value for key, value in identity.items() if key != "accepts"}
    assert identity_difference(identity, plain) is None


@pytest.mark.parametrize(("form", "beam"), [("half", 3), ("8bit", 4)])
def test_the_command_writes_one_file_and_prints_its_size(
    source, tmp_path, capsys, form, beam
):
    out = tmp_path / "out" / "small.safetensors"
    options = ["--format", form, "--beam", str(beam), "--accept-imagenet"]
    assert exit_code("export", source, *options, "--out", out) == 0
    assert [path.name for path in out.parent.iterdir()] == ["small.safetensors"]
    assert capsys.readouterr().out == f"{out}: {out.stat().st_size / 1e6:.1f} MB\n"
    model, original = load_captioner(out), load_captioner(source)
    assert is_accepted(model.encoder_identity, "imagenet")
    assert (model.decoding.beam, original.decoding.beam) == (beam, 5)
    error = np.abs(np.subtract(model.decoder.w_h, original.decoder.w_h)).max()
    assert 0 < error < (0.001 if form == "half" else 0.02)


@pytest.mark.parametrize("form", ["half", "8bit", "keras"])
@pytest.mark.parametrize("method", ["greedy", "sample"])
def test_a_beam_replaces_another_method(rng, tmp_path, form, method):
    model = tiny_captioner.build(rng)
    model.decoding = dataclasses.replace(model.decoding, method=method)
    model.save(tmp_path / "model.safetensors")
    suffix = "keras" if form == "keras" else "safetensors"
    out = tmp_path / f"new.{suffix}"
    options = ["--format", form, "--beam", "3", "--out", out]
    assert exit_code("export", tmp_path / "model.safetensors", *options) == 0
    read = keras.saving.load_model if form == "keras" else load_captioner
    decoding = read(out).decoding
    assert (decoding.method, decoding.beam) == ("beam", 3)


def test_only_networks_whose_download_is_known_accept_it(rng, tmp_path):
    identity = {"encoder_identity": {"network": "SceneNet"}}
    tiny_captioner.build(rng, identity).save(tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match="one of VGG16, VGG19.*SceneNet"):
        save_half(
            tmp_path / "model.safetensors", tmp_path / "half.safetensors", imagenet=True
        )


def test_the_digests_are_those_of_keras():
    for name, module in (("VGG16", vgg16), ("VGG19", vgg19)):
        assert KERAS_FILES[name] in inspect.getsource(module)


@pytest.mark.nightly
def test_the_shipped_model_is_small_and_has_its_card():
    if not pretrained.SHIPPED.is_file():
        pytest.skip("this installation ships no model")
    model = pretrained.shipped_model()
    assert model.stat().st_size < 18e6
    assert unpacked(model)[0].keys() >= {"config", "reranker", "confidence"}
    for name in pretrained.NAMES:
        model = load_captioner(pretrained.shipped_model(name))
        assert is_accepted(model.encoder_identity, "imagenet")
    card = pretrained.SHIPPED.with_name("MODEL_CARD.md").read_text(encoding="utf-8")
    for text in ("Flickr8k", "research", "BLEU-4", "Limits"):
        assert text in card
