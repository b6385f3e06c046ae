"""Checkpoints: every variable is restored, and damaged files are refused."""

import keras
import numpy as np
import pytest
import tiny_captioner as tiny
from checks import assert_equal_leaves
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st
from refusals import refusal
from tensor_files import repack, unpacked
from tiny_run import experiment

from show_attend_tell.runtime.errors import TrainingError
from show_attend_tell.training.checkpoint import (
    Position,
    read_position,
    restore_checkpoint,
    save_checkpoint,
)
from show_attend_tell.training.optimizer import make_optimizer

POSITION = Position(epoch=2, best=21.5)


def build(seed=1, average_decay=0.9, **widths):
    """Return a compiled model with dropout and an average of weights."""
    rng, dropout = np.random.default_rng(seed), {"dropout": 0.5, "channel_dropout": 0.2}
    model = tiny.build(rng, {"seed": seed}, **dropout, **widths)
    chosen = experiment(training={"average_decay": average_decay}).training
    model.compile(optimizer=make_optimizer(chosen, 20), run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    return model


def take_step(model, seed=0):
    rng = np.random.default_rng(seed)
    inputs, targets = tiny.captions(rng)
    a = keras.ops.convert_to_tensor(tiny.photos(rng))
    model.train_on_batch({"annotations": a, "tokens": inputs}, targets)


@pytest.fixture(scope="module")
def other():
    """A model with other weights, to restore into."""
    return build(seed=2)


def state(model):
    return [np.array(v) for v in model.variables + model.optimizer.variables]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A checkpoint after two steps, the state then, and the state one step later."""
    path = tmp_path_factory.mktemp("run") / "checkpoint.safetensors"
    model = build()
    for k in range(2):
        take_step(model, k)
    save_checkpoint(path, model, POSITION)
    then = state(model)
    take_step(model, 2)
    return path, then, state(model)


def test_a_checkpoint_restores_every_variable_and_the_position(stored, other):
    path, then, later = stored
    model = other
    assert restore_checkpoint(path, model) == read_position(path) == POSITION
    assert_equal_leaves(state(model), then)
    assert int(model.optimizer.iterations) == 2
    take_step(model, 2)  # the same dropout, moments, average and rate
    assert_equal_leaves(state(model), later)


def test_a_failed_checkpoint_leaves_the_earlier_one(stored, other, monkeypatch):
    path, _, _ = stored
    before = path.read_bytes()
    monkeypatch.setattr(
        "pathlib.Path.write_bytes",
        lambda *a, **k: (_ for _ in ()).throw(OSError("full")),
    )
    with pytest.raises(OSError, match="full"):
        save_checkpoint(path, other, POSITION)
    assert path.read_bytes() == before


def refusal_of(path, model):
    message = refusal(TrainingError, restore_checkpoint, path, model)
    assert str(path) in message
    return message


@pytest.mark.parametrize("change", [{"average_decay": 0.0}, {"lstm_width": 5}])
def test_the_checkpoint_of_another_model_or_optimiser_is_refused(stored, change):
    message = refusal_of(stored[0], build(**change))
    assert "restore the settings, or train again with --overwrite" in message


@limits(suppress_health_check=list(HealthCheck))
@given(
    where=st.floats(0, 1, exclude_max=True), cut=st.booleans(), flip=st.integers(1, 255)
)
def test_a_damaged_checkpoint_is_refused_or_restored_in_full(
    stored, other, tmp_path_factory, where, cut, flip
):
    path, then, _ = stored
    content = bytearray(path.read_bytes())
    place = int(where * len(content))
    if cut:
        del content[place:]
    else:
        content[place] ^= flip
    damaged = tmp_path_factory.mktemp("damaged") / "checkpoint.safetensors"
    damaged.write_bytes(content)
    try:
        position = restore_checkpoint(damaged, other)
    except TrainingError as error:
        message = str(error)
    else:
        message = ""
        assert position == POSITION
        assert_equal_leaves(state(other), then)
    assert "\n" not in message


@pytest.mark.parametrize("content", [None, b"", b"PK", b"no archive at all"])
def test_absent_files_and_other_files_are_refused(tmp_path, other, content):
    path = tmp_path / "checkpoint.safetensors"
    if content is not None:
        path.write_bytes(content)
    remedy = "damaged: train again with --overwrite in place of --resume"
    assert remedy in refusal_of(path, other)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda old: np.full(old.shape, np.nan, old.dtype), "lower training.learning"),
        (lambda old: np.full(old.shape, -np.inf, old.dtype), "lower training.learning"),
        (lambda old: old.astype(np.float64), "damaged"),
        (lambda old: old.astype(np.float16), "damaged"),
        (lambda old: old.astype(np.int8), "damaged"),
        (lambda old: old > 0, "damaged"),
        (lambda old: old[..., None], "restore the settings"),
    ],
)
def test_arrays_of_other_types_or_values_are_refused(
    stored, other, tmp_path, values, message
):
    path = tmp_path / "checkpoint.safetensors"
    first = values(unpacked(stored[0])[1]["model/0000"])
    repack(stored[0], arrays={"model/0000": first}, target=path)
    assert message in refusal_of(path, other)
