"""A decoder that has a layer of Keras, and no equations in NumPy yet."""

import logging

import numpy as np
import pytest
import tiny_captioner as tiny
import tiny_transformer
from refusals import refusal
from shell import exit_code
from tiny_evaluation import make_place
from tiny_pipeline import make_captioner, make_encoder, photo_image

from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.reference.captioner import EQUATIONS
from show_attend_tell.runtime.errors import ModelFileError

pytestmark = pytest.mark.usefixtures("eager_searches")


@pytest.fixture
def without_equations(monkeypatch):
    """Forget the equations, so that both decoders are new."""
    for decoder in list(EQUATIONS):
        monkeypatch.delitem(EQUATIONS, decoder)
    # Models of the package have equations.
    monkeypatch.setattr("show_attend_tell.models.pretrained.PRESETS", {})


@pytest.mark.parametrize("decoder", [tiny, tiny_transformer])
def test_its_model_is_saved_and_loaded(without_equations, rng, tmp_path, decoder):
    model = decoder.build(rng)
    model.save(tmp_path / "model.safetensors")
    loaded = load_captioner(tmp_path / "model.safetensors")
    assert loaded.settings == model.settings
    for one, other in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    model.save_to_preset(tmp_path / "preset")
    Captioner.from_preset(tmp_path / "preset")


def test_its_weights_have_the_names_that_the_equations_may_use(
    monkeypatch, rng, tmp_path
):
    with monkeypatch.context() as patch:
        patch.delitem(EQUATIONS, "lstm")
        tiny.build(rng).save(tmp_path / "model.safetensors")
    load_captioner(tmp_path / "model.safetensors")  # by the names of the equations


@pytest.fixture
def model_file(without_equations, tmp_path):
    """Return the file of a new decoder's model."""
    path = tmp_path / "model.safetensors"
    make_captioner(make_encoder()).save(path)
    return path


def test_keras_captions_and_one_line_names_the_file_to_write(model_file, caplog):
    with caplog.at_level(logging.WARNING):
        pipeline = load(model_file)
    (line,) = caplog.messages
    assert pipeline.engine.is_keras
    assert pipeline.caption(photo_image()).words
    assert line.startswith(str(model_file))
    assert "show_attend_tell/reference/lstm.py" in line
    pipeline.save(model_file.with_name("copy.safetensors"))


def test_the_engine_of_numpy_is_refused_with_the_same_line(model_file):
    line = refusal(ModelFileError, load, model_file, engine="numpy")
    assert line.startswith(f"{model_file}: its decoder 'lstm' has no equations")
    assert "show_attend_tell/reference/lstm.py" in line


@pytest.mark.parametrize("form", ["half", "8bit"])
def test_it_is_exported_with_smaller_weights(model_file, form):
    out = model_file.with_name("small.safetensors")
    assert exit_code("export", model_file, "--format", form, "--out", out) == 0
    assert out.stat().st_size < model_file.stat().st_size
    load_captioner(out)


def test_it_is_evaluated_by_keras(without_equations, tmp_path, no_java):
    assert make_place(tmp_path).evaluate().photos == 4
