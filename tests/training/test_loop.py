"""The loop of training with a task that has neither captions nor photos."""

import math
from unittest import mock

import keras
import numpy as np
import pytest
from refusals import refused
from tensor_files import unpacked
from tiny_run import experiment
from tiny_training import change_position, read_checkpoint

from show_attend_tell.config.fields import OptimiserSettings
from show_attend_tell.config.runs import CHECKPOINT, MODEL
from show_attend_tell.reference.tensor_file import write_tensors
from show_attend_tell.runtime.errors import TrainingError
from show_attend_tell.runtime.progress import ProgressBar
from show_attend_tell.training import loop
from show_attend_tell.training.divergence import (
    CHECK_INTERVAL,
    HIGH_UPDATES,
    MonitoredLoss,
)
from show_attend_tell.training.loop import Trainer
from show_attend_tell.training.optimizer import make_optimizer

STEPS = 2  # updates per epoch
REWARD = {"objective": "cider", "hypotheses": 5}


class Weight(keras.Sequential):
    """A model of one dense layer, which saves itself as a file of tensors."""

    def save(self, path):
        arrays = {weight.path: np.asarray(weight) for weight in self.weights}
        write_tensors(path, {"class": "Weight"}, arrays)


class Counting:
    """A task of one weight, with given scores of its validations."""

    metric, other = "bound", "another task"
    starts_trained = start_counts = False
    digest, graphs, steps = "", 1, STEPS
    monitored = MonitoredLoss(10, key="nats")
    data_digests = {}
    check_result = mock.Mock()

    def __init__(self, scores, **changes):
        self.settings = OptimiserSettings(**{"epochs": len(scores), **changes})
        self.scores, self.objective = list(scores), self
        self.model = Weight([keras.Input((1,)), keras.layers.Dense(1, name="one")])

    def compile(self, total_steps):
        self.model.compile(make_optimizer(self.settings, total_steps))
        self.model.optimizer.build(self.model.trainable_variables)

    def updates(self, epoch, start=0):
        for _ in range(start, STEPS):
            gradients = [keras.ops.ones(w.shape) for w in self.model.trainable_weights]
            self.model.optimizer.apply(gradients)
            yield {"loss": 1.0, "nats": 1.0}

    def open_log(self, folder):
        return mock.MagicMock()

    def validate(self, model, step):
        return {"bound": self.scores.pop(0)}

    show = mock.Mock()


def run(folder, scores, resume=False, kind=Counting, **changes):
    folder.mkdir(exist_ok=True)
    return Trainer(kind(scores, **changes)).run(folder, resume, progress=False)


def test_the_best_of_negative_scores_is_kept_and_the_last_update_validated(tmp_path):
    summary = run(tmp_path / "x", [-120.0, -105.0, -110.0])
    assert (summary.best, summary.best_step) == (-105.0, 2 * STEPS)
    assert (summary.metric, summary.steps) == ("bound", 3 * STEPS)
    assert summary.model.exists()
    assert run(tmp_path / "y", [-5.0], validate_every=100).best_step == STEPS


def test_a_score_that_is_no_number_is_never_the_best(tmp_path):
    summary = run(tmp_path / "x", [math.nan])
    assert math.isnan(summary.best)
    assert not (tmp_path / "x" / MODEL).exists()
    assert read_checkpoint(tmp_path, "x")[1]["best"] is None
    assert run(tmp_path / "y", [math.nan, -3.0]).best == -3.0


@pytest.mark.parametrize("best", [-1.0, None])
def test_a_checkpoint_without_a_best_score_is_resumed(tmp_path, best):
    """Earlier versions stored -1.0, which is less than any score of captions."""
    run(tmp_path / "x", [math.nan, math.nan], patience=1)
    path = tmp_path / "x" / CHECKPOINT
    change_position(path, {"best": best, "stopped": ""})
    summary = run(tmp_path / "x", [0.0], resume=True, epochs=2)
    assert (summary.best, summary.best_step) == (0.0, 2 * STEPS)


def test_the_bar_of_a_resumed_training_begins_where_it_was(tmp_path, capsys):
    class Interrupted(Counting):
        def updates(self, epoch, start=0):
            if epoch == 1:
                raise KeyboardInterrupt
            return super().updates(epoch, start)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "x", [-2.0, -1.0], kind=Interrupted)
    Trainer(Counting([-1.0, -1.0])).run(tmp_path / "x", True, progress=True)
    first, *_ = capsys.readouterr().err.strip().split("\r")
    assert f" {STEPS}/{2 * STEPS} [" in first


def test_the_time_left_counts_no_update_that_compiles_a_graph(tmp_path, monkeypatch):
    compiled = []

    class Lengths(Counting):
        def updates(self, epoch, start=0):
            for number, values in enumerate(super().updates(epoch, start)):
                self.graphs += epoch == 1 and number == 0  # another length of captions
                yield values

    monkeypatch.setattr(
        ProgressBar, "update", lambda bar, n=1, **options: compiled.append(options)
    )
    run(tmp_path / "x", [-2.0, -1.0], kind=Lengths)
    assert [options["compiled"] for options in compiled] == [False, False, True, False]


@pytest.mark.parametrize(
    ("settings", "devices", "remedy"),
    [
        ({"batch_size": 9}, 1, "--set training.batch_size=4"),
        ({"batch_size": 36}, 4, "--set training.batch_size=16"),
        ({"batch_size": 4}, 4, "train a smaller model, or on a device with more"),
        ({"batch_size": 1}, 1, "train a smaller model, or on a device with more"),
        ({"batch_size": 15, **REWARD}, 1, "--set training.batch_size=5"),
        ({"batch_size": 40, **REWARD}, 2, "--set training.batch_size=20"),
        ({"batch_size": 5, **REWARD}, 1, "train a smaller model, or on a device with"),
    ],
)
def test_a_full_device_is_told_the_next_smaller_batch_if_there_is_one(
    tmp_path, monkeypatch, settings, devices, remedy
):
    class Full(Counting):
        def __init__(self, scores):
            super().__init__(scores)
            self.settings = experiment(training={"epochs": 1, **settings}).training

        def updates(self, epoch, start=0):
            raise RuntimeError("full")

    monkeypatch.setattr(loop, "is_out_of_memory", lambda error: True)
    monkeypatch.setattr(loop, "device_count", lambda: devices)
    with refused(TrainingError, f"too little memory for an update of .*{remedy}"):
        run(tmp_path / "x", [-1.0], kind=Full)


def test_a_resumed_training_knows_since_when_its_loss_is_too_large(tmp_path):
    rises = CHECK_INTERVAL  # the update since which the loss is 100 times the first
    interrupted = rises + HIGH_UPDATES - 10

    class Diverging(Counting):
        def __init__(self, scores, stop):
            super().__init__(scores, patience=1000)
            self.stop = stop

        def updates(self, epoch, start=0):
            first = epoch * STEPS + start + 1
            for step, values in enumerate(super().updates(epoch, start), first):
                yield {**values, "nats": 100.0 if step >= rises else 1.0}
                if step == self.stop:
                    raise KeyboardInterrupt

    scores = [0.0] * (rises + HIGH_UPDATES)
    (tmp_path / "x").mkdir()
    with pytest.raises(KeyboardInterrupt):
        Trainer(Diverging(scores, interrupted)).run(tmp_path / "x", False, False)
    with refused(TrainingError, f"at update {rises + HIGH_UPDATES};"):
        Trainer(Diverging(scores, None)).run(tmp_path / "x", True, False)


def test_training_stops_when_patience_ends_and_stays_stopped(tmp_path):
    scores = [-5.0, -6.0, -4.0, -5.0, -5.0, 9.0]  # a better score resets patience
    summary = run(tmp_path / "x", scores, patience=2)
    assert (summary.best, summary.best_step) == (-4.0, 3 * STEPS)
    assert summary.steps == 5 * STEPS
    assert summary.stopped == "no improvement in 2 validations"
    again = run(tmp_path / "x", scores, resume=True, patience=2)
    assert (again.best, again.steps) == (-4.0, 5 * STEPS)
    assert again.stopped == summary.stopped


def test_more_epochs_extend_a_run_that_is_finished_or_has_stopped(tmp_path):
    run(tmp_path / "x", [-5.0, -4.0])
    longer = run(tmp_path / "x", [-3.0, -6.0], resume=True, epochs=4)
    assert (longer.best, longer.best_step, longer.steps) == (-3.0, 6, 4 * STEPS)
    assert longer.stopped == "all epochs done"
    stopped = run(tmp_path / "y", [-5.0, -6.0, -7.0], epochs=9, patience=2)
    assert stopped.steps == 3 * STEPS
    assert stopped.stopped
    again = run(tmp_path / "y", [-1.0], resume=True, epochs=9, patience=2)
    assert (again.steps, again.stopped) == (stopped.steps, stopped.stopped)
    rest = [-4.0, -6.0, -7.0]  # patience begins anew
    longer = run(tmp_path / "y", rest, resume=True, epochs=10, patience=2)
    assert (longer.best, longer.steps) == (-4.0, 6 * STEPS)


def test_the_saved_model_has_the_averaged_weights_of_its_validation(tmp_path):
    decay, validated, updated = 0.9, [], []

    class Recorded(Counting):
        def updates(self, epoch, start=0):
            for values in super().updates(epoch, start):
                updated.append(self.model.get_weights())
                yield values

        def validate(self, model, step):
            validated.append(model.get_weights())
            return super().validate(model, step)

    how = {"kind": Recorded, "schedule": "constant", "average_decay": decay}
    summary = run(tmp_path / "x", [-1.0, -2.0], **how)
    _, arrays = unpacked(summary.model)
    kept = arrays["one/kernel"], arrays["one/bias"]
    for j, weight in enumerate(kept):
        np.testing.assert_array_equal(weight, validated[0][j])  # one epoch, not two
        mean = (decay * updated[0][j] + updated[1][j]) / (1 + decay)
        np.testing.assert_allclose(weight, mean, rtol=1e-5)
