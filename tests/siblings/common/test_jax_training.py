"""Rows are trained on JAX, their seeds together; run by `make test-jax`."""

import json
import re
import runpy
import sys
from pathlib import Path

import keras
import made_up_digits
import numpy as np
import pytest
import tiny_reader

from show_attend_tell.runtime.errors import TrainingError
from show_attend_tell.siblings.digits.data import make_pictures
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS

RESEARCH = Path(__file__).parents[3] / "research"
if keras.backend.backend() != "jax":
    pytest.skip("needs KERAS_BACKEND=jax", allow_module_level=True)

MADE = {
    "ram": made_up_digits.experiment,
    "draw": made_up_digits.drawing_experiment,
    "words": tiny_reader.experiment,
}


@pytest.fixture
def tool(monkeypatch):
    """The names of research/jax_training.py."""
    monkeypatch.syspath_prepend(str(RESEARCH))
    return runpy.run_path(str(RESEARCH / "jax_training.py"))


@pytest.mark.parametrize("clutter", [0, 4])
def test_pictures_are_those_of_numpy(tool, clutter):
    import jax

    images, H = made_up_digits.digits(200).images, 60
    data = {"canvas": H, "clutter": clutter}
    settings = made_up_digits.experiment(data=data).data
    made = np.array(tool["make_pictures"](jax.random.key(0), images, settings))
    rng = np.random.default_rng(0)
    usual = make_pictures(images, images, settings, rng)
    assert (made.shape, made.dtype) == (usual.shape, usual.dtype)
    ink, digit = made.sum(axis=(1, 2)), images.sum(axis=(1, 2))
    assert (ink >= digit).all() if clutter else (ink == digit).all()
    np.testing.assert_allclose(made.mean(), usual.mean(), rtol=0.05)


SLOW = pytest.param("words", marks=pytest.mark.slow)  # minutes of compilation


@pytest.mark.parametrize("name", ["ram", "draw", SLOW])
def test_the_loss_of_each_seed_falls(tool, work, monkeypatch, capsys, name):
    settings = {"epochs": 40, "learning_rate": 0.01}
    experiments = [MADE[name](training={**settings, "seed": k}) for k in (1, 2)]
    monkeypatch.setitem(tool["train"].__globals__, "WORK", work)
    one, other = tool["train"](experiments)
    printed = re.findall(r" loss \[(.*?)\]", capsys.readouterr().out)
    losses = np.array([line.split() for line in printed], float)
    assert (losses[-1] < 0.9 * losses[0]).all()
    assert all(np.isfinite(weight).all() for weight in one.get_weights())
    assert not np.allclose(*(model.get_weights()[0] for model in (one, other)))


def test_a_training_that_diverges_is_refused(tool, work, monkeypatch):
    monkeypatch.setitem(tool["train"].__globals__, "WORK", work)
    training = {"epochs": 2, "learning_rate": 1e30}
    made = MADE["ram"](training=training, classifier={"widths": [4]})
    with pytest.raises(TrainingError, match="has diverged by epoch"):
        tool["train"]([made])


def test_a_row_leaves_runs(tool, tmp_path, monkeypatch):
    made_up_digits.prepare(tmp_path / "prepared", count=336)
    monkeypatch.chdir(tmp_path)
    values = ("data.name=made-up", "data.validation=16", "training.batch_size=32")
    changes = [x for value in values for x in ("--set", value)]
    monkeypatch.setattr(sys, "argv", ["", "ram_baseline", "--seeds", "3", *changes])
    tool["main"]()
    folder = tmp_path / "experiments/runs/ram_baseline-seed-3"
    assert json.loads((folder / tool["TRAINED"]).read_text())["seeds"] == [3]
    images, labels = made_up_digits.digits(64, seed=5)
    model = CLASSIFIERS.load(folder / "model.safetensors")
    logits = np.array(model(images.astype("float32") / 255)["logits"])
    assert (logits.argmax(axis=1) == labels).mean() > 0.9
