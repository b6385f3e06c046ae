"""Trainings of a few updates, and the comparison of two run folders."""

import contextlib

import keras
import numpy as np
import pytest
from tensor_files import repack, unpacked
from tiny_run import experiment

from show_attend_tell.config.runs import CHECKPOINT, MODEL
from show_attend_tell.training import maximum_likelihood
from show_attend_tell.training import train as training
from show_attend_tell.training.loop import Trainer
from show_attend_tell.training.tensorboard_log import TrainingLog
from show_attend_tell.training.train import train

STEPS = 3  # updates per epoch: 18 captions in batches of 8
# Settings of other models and objectives.
SIZES = {"layers": 1, "width": 8, "heads": 2, "hidden": 16, "dropout": 0.1}
TRANSFORMER = {"model": {"decoder": "transformer"}, "transformer": SIZES}
HARD = {
    "model": {"attention": "hard"},
    "hard": {"samples": 2, "drawn_per": "caption", "baseline_decay": 0.8},
}
REWARD = {"objective": "cider", "batch_size": 10, "hypotheses": 2}


class QuickStep:
    """An update without the model's graph, for tests of the loop around it.

    It depends on the batch, the weights and the random state, and goes through the
    optimiser, so that a wrong order or a lost state changes the weights.
    """

    def __init__(self, model, *options):
        self.model = model

    def __call__(self, x, targets, weight=None):
        noise = np.mean(self.model.dropout(np.ones((4, 8), np.float32), training=True))
        value = noise + np.mean(x["annotations"], dtype=float) + np.mean(targets)
        weights = self.model.trainable_variables
        gradient = [0.1 + np.float32(value) * np.asarray(w) for w in weights]
        self.model.optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradient])
        norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradient))
        return {"loss": value, "word_loss": value, "norm": norm}


def score_weights(model, *rest):
    """Return scores computed from the weights, in place of those of captions."""
    value = float(np.sum(np.abs(np.asarray(model.decoder.embedding)))) % 1.0
    return {"BLEU-4": 100 * value, "CIDEr": 1.0}, {}


def score_in_turn(patch, scores):
    """Let each validation take its scores, all the same, from an iterable."""
    scores = iter(scores)

    def validate(*arguments):
        return dict.fromkeys(("BLEU-4", "CIDEr"), next(scores)), {}

    patch.setattr(training, "validate", validate)


def skip_captions(patch):
    """Generate no captions and log no samples while training, to save time."""
    patch.setattr(training, "validate", score_weights)
    for name in ("log_samples", "log_embedding"):
        patch.setattr(TrainingLog, name, lambda *arguments: None)


def record_updates(patch):
    """Return a list that receives the values of every update."""
    rows = []
    patch.setattr(
        TrainingLog, "log_update", lambda self, step, values, *rest: rows.append(values)
    )
    return rows


def skip_graphs(patch):
    """Skip captions, and replace the compiled training step by a quick one."""
    skip_captions(patch)
    patch.setattr(maximum_likelihood, "captioner_step", QuickStep)


def go(work, folder, resume=False, overwrite=False, **changes):
    """Train the tiny experiment."""
    chosen = experiment(**changes)
    return train(chosen, work, folder, resume, overwrite, progress=False)


def train_first(work, folder, epochs):
    """Train by likelihood for a few epochs; return the folder of runs."""
    with pytest.MonkeyPatch.context() as patch:
        skip_captions(patch)
        often = {"learning_rate": 0.03, "validate_every": 100}
        go(work, folder, training={"epochs": epochs, **often})
    return folder


def start_run(work, folder):
    """Train for an epoch of quick steps; return the folder of runs."""
    with pytest.MonkeyPatch.context() as patch:
        skip_graphs(patch)
        go(work, folder, training={"epochs": 1})
    return folder


def _interrupt():
    raise KeyboardInterrupt


def read_checkpoint(folder, name="tiny"):
    """Return the arrays and the position of a run's checkpoint."""
    about, arrays = unpacked(folder / name / CHECKPOINT)
    return arrays, about["position"]


def assert_same_run(one, other, name="tiny"):
    """Compare two run folders: last weights, optimiser, position, best model."""
    (arrays, position), (others, other_position) = (
        read_checkpoint(folder, name) for folder in (one, other)
    )
    assert position == other_position
    assert arrays.keys() == others.keys()
    for key, values in arrays.items():
        np.testing.assert_array_equal(values, others[key], err_msg=key)
    assert (one / name / MODEL).read_bytes() == (other / name / MODEL).read_bytes()


def interrupt_in_log(patch, step, stop=_interrupt):
    """Call a function after update ``step`` was applied and counted."""
    real_log = TrainingLog.log_update

    def interrupted(self, number, *rest):
        real_log(self, number, *rest)
        if number == step:
            stop()

    patch.setattr(TrainingLog, "log_update", interrupted)


def interrupt(patch, when):
    """Raise KeyboardInterrupt after an update, before what follows it."""
    after_update = Trainer._after_update

    def stop(self, *arguments):
        if self.position.step == when:
            raise KeyboardInterrupt
        after_update(self, *arguments)

    patch.setattr(Trainer, "_after_update", stop)


@contextlib.contextmanager
def interrupted(interrupt, when):
    """Run a training that ``interrupt(patch, when)`` makes fail."""
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, when)
        with pytest.raises((KeyboardInterrupt, OSError)):
            yield


def change_position(path, change):
    """Replace the position in a checkpoint, or the fields named in a dict."""
    position = unpacked(path)[0]["position"]
    position = {**position, **change} if isinstance(change, dict) else change
    repack(path, {"position": position})


def assert_resumes(train, folder, when, name="tiny"):
    """Interrupt a training after an update, resume it, and compare the two runs.

    ``train`` takes the folder of runs, and whether to resume.
    """
    train(folder / "whole")
    with interrupted(interrupt, when):
        train(folder / "parts")
    assert read_checkpoint(folder / "parts", name)[1]["step"] == when
    train(folder / "parts", resume=True)
    assert_same_run(folder / "whole", folder / "parts", name)
