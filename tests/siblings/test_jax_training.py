"""Rows are trained on JAX, their seeds together; run by `make test-jax`."""

import json
import runpy
import sys
from pathlib import Path

import keras
import made_up_digits
import numpy as np
import pytest

from show_attend_tell.data.digits import make_pictures

DOCS = Path(__file__).parents[2] / "docs"
if keras.backend.backend() != "jax":
    pytest.skip("needs KERAS_BACKEND=jax", allow_module_level=True)


@pytest.fixture
def tool(monkeypatch):
    """The names of docs/jax_training.py."""
    monkeypatch.syspath_prepend(str(DOCS))
    return runpy.run_path(str(DOCS / "jax_training.py"))


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
    for axis in (1, 2):  # in all places
        np.testing.assert_allclose(
            made.mean(axis=(0, axis)), usual.mean(axis=(0, axis)), atol=12
        )


def test_seeds_learn_together_and_leave_runs(tool, tmp_path, monkeypatch):
    made_up_digits.prepare(tmp_path / "prepared", count=336)
    monkeypatch.chdir(tmp_path)
    values = "data.name=made-up data.validation=16 training.epochs=12 glimpse.patch=28"
    changes = [x for value in values.split() for x in ("--set", value)]
    changes += ["--set", "glimpse.glimpses=2", "--set", "training.batch_size=32"]
    monkeypatch.setattr(sys, "argv", ["", "ram_mnist", "--seeds", "1,2", *changes])
    tool["main"]()
    images, labels = made_up_digits.digits(64, seed=5)
    weights = []
    for seed in (1, 2):
        folder = tmp_path / f"experiments/runs/ram_mnist-seed-{seed}"
        assert json.loads((folder / "trained.json").read_text())["seeds"] == [1, 2]
        model = keras.models.load_model(folder / "model.keras")
        logits = np.array(model(images.astype("float32") / 255)["logits"])
        assert (logits.argmax(axis=1) == labels).mean() > 0.6
        weights.append(np.array(model.weights[0]))
    assert not np.allclose(*weights)
