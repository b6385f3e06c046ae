"""Trainings that are interrupted, killed or begun again."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_run import prepare
from tiny_training import STEPS, assert_same_run, go, read_checkpoint, skip_captions

from show_attend_tell.runtime.errors import RunError
from show_attend_tell.training import train as training
from show_attend_tell.training.maximum_likelihood import Likelihood
from show_attend_tell.training.tensorboard_log import TrainingLog


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"), mirror=True)


@pytest.fixture
def unvalidated(monkeypatch):
    skip_captions(monkeypatch)


@pytest.fixture(scope="module")
def whole(work, tmp_path_factory):
    """The folder of a training that was never interrupted; it is not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        skip_captions(patch)
        go(work, folder)
    return folder


@pytest.fixture
def copied(whole, tmp_path, unvalidated):
    """A copy of that folder."""
    return Path(shutil.copytree(whole, tmp_path / "copied"))


def interrupt_in_log(monkeypatch, step):
    """Raise KeyboardInterrupt after update ``step`` was taken and counted."""
    real_step = TrainingLog.step

    def interrupted(self, number, *rest):
        real_step(self, number, *rest)
        if number == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingLog, "step", interrupted)


def interrupt_in_update(monkeypatch, step):
    """Raise it as Ctrl-C does: on the way back from the compiled update."""
    real_update = Likelihood._step_function

    def make(self, *rest):
        function = real_update(self, *rest)

        def update(*batch):
            values = function(*batch)
            if int(self.model.optimizer.iterations) == step:
                raise KeyboardInterrupt
            return values

        return update

    monkeypatch.setattr(Likelihood, "_step_function", make)


def interrupt_in_validation(monkeypatch, number):
    """Raise it in the validation of that number, from 1."""
    real_validate, calls = training.validate, []

    def interrupted(*rest):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return real_validate(*rest)

    monkeypatch.setattr(training, "validate", interrupted)


def test_a_training_interrupted_again_and_again_goes_on_as_if_it_had_not_been(
    whole, work, tmp_path, unvalidated
):
    interruptions = [
        (interrupt_in_log, 2),
        (interrupt_in_log, STEPS),  # the epoch's last update, before its validation
        (interrupt_in_update, 5),
        (interrupt_in_validation, 1),
    ]
    steps = []
    for number, (interrupt, when) in enumerate(interruptions):
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, when)
            with pytest.raises(KeyboardInterrupt):
                go(work, tmp_path, resume=number > 0)
        steps.append(read_checkpoint(tmp_path)[1]["step"])
    assert steps == [2, 3, 5, 6]
    summary = go(work, tmp_path, resume=True)
    assert summary.steps == 3 * STEPS
    assert_same_run(whole, tmp_path)


def test_the_same_seed_gives_the_same_model_and_another_another(
    whole, work, tmp_path, unvalidated
):
    go(work, tmp_path / "again")
    assert_same_run(whole, tmp_path / "again")
    go(work, tmp_path / "other", training={"seed": 2, "epochs": 1})
    ours, theirs = (read_checkpoint(f)[0] for f in (whole, tmp_path / "other"))
    different = [name for name in ours if not np.array_equal(ours[name], theirs[name])]
    assert len(different) > len(ours) / 2


def test_resuming_a_finished_training_changes_nothing(whole, copied, work):
    summary = go(work, copied, resume=True)
    assert summary.steps == 3 * STEPS
    assert_same_run(whole, copied)


def test_resuming_with_other_settings_is_refused_by_one_line(work, whole):
    with pytest.raises(RunError, match=r"training.learning_rate was 0.02") as caught:
        go(work, whole, resume=True, training={"learning_rate": 0.5})
    assert "\n" not in str(caught.value)


def test_an_existing_run_is_refused_and_replaced_on_demand(work, copied):
    with pytest.raises(RunError, match="a run is already present"):
        go(work, copied)
    summary = go(work, copied, overwrite=True, training={"epochs": 1})
    assert summary.steps == STEPS


KILLED = """
import os, pathlib, signal, sys
sys.path[:0] = [{root!r}, {tests!r}]
import pytest, tiny_training
from tiny_training import TrainingLog
step = TrainingLog.step
def wait(self, number, *rest):
    step(self, number, *rest)
    if number == 8:
        os.kill(os.getpid(), signal.SIGKILL)
TrainingLog.step = wait
tiny_training.skip_captions(pytest.MonkeyPatch())
often = {{"checkpoint_every": 1}}
tiny_training.go(pathlib.Path({work!r}), pathlib.Path({folder!r}), training=often)
"""


@pytest.mark.slow
def test_a_killed_training_goes_on_from_its_last_checkpoint(
    work, tmp_path, unvalidated
):
    often = {"checkpoint_every": 1}
    go(work, tmp_path / "whole", training=often)
    tests = Path(__file__).resolve().parents[1] / "support"
    folder = tmp_path / "killed"
    paths = {"root": str(tests.parent), "tests": str(tests)}
    code = KILLED.format(**paths, work=str(work), folder=str(folder))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert read_checkpoint(folder)[1]["step"] == 7
    go(work, folder, resume=True, training=often)
    assert_same_run(tmp_path / "whole", folder)
