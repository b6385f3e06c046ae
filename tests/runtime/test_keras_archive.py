"""Models are written on any date."""

import os
import time

import keras
import numpy as np
import pytest
from tiny_captioner import build

from show_attend_tell.models.captioner import Captioner
from show_attend_tell.runtime.keras_archive import save_keras
from show_attend_tell.training.checkpoint import (
    Position,
    restore_checkpoint,
    save_checkpoint,
)


@pytest.fixture(params=[1000, 2**32 + 2**31], ids=["1970", "2174"])
def clock(request, monkeypatch):
    """Set the clock and the dates of new files beyond those of zip files."""
    monkeypatch.setattr(time, "time", lambda: float(request.param))
    return request.param


def test_models_and_checkpoints_are_written_on_any_date(tmp_path, clock):
    model = build(np.random.default_rng(1))
    model.compile(keras.optimizers.Adam())
    model.optimizer.build(model.trainable_variables)
    save_checkpoint(tmp_path / "checkpoint.safetensors", model, Position(step=3))
    assert restore_checkpoint(tmp_path / "checkpoint.safetensors", model).step == 3
    save_keras(model, tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for ours, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.safetensors", "model.keras"]


def test_a_preset_has_a_relative_path_and_files_of_any_date(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = build(np.random.default_rng(1))
    model.save_to_preset("folder")
    for file in (tmp_path / "folder").iterdir():
        os.utime(file, (1000, 1000))
    again = Captioner.from_preset("folder")
    for ours, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    save_keras(model, "model.keras")
    assert sorted(os.listdir(tmp_path)) == ["folder", "model.keras"]
