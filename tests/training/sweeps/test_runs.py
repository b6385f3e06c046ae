"""Runs of a sweep equal trainings of their settings alone, and resume."""

import dataclasses
import json

import pytest
from tiny_run import experiment, prepare
from tiny_training import STEPS, assert_same_run, read_checkpoint, skip_graphs

from show_attend_tell.config import runs
from show_attend_tell.config.grid import grid_variants
from show_attend_tell.runtime.errors import ConfigError, RunError, TrainingError
from show_attend_tell.training.sweeps import runs as sweeps
from show_attend_tell.training.sweeps.runs import Job, Sweep, plan, train_in_turn
from show_attend_tell.training.train import train

CHOSEN = experiment(training={"epochs": 2})
NAMES = ["tiny-seed-5", "tiny-seed-2"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"))


@pytest.fixture
def quick(monkeypatch):
    skip_graphs(monkeypatch)


def go(
    work, folder, seeds=(5, 2), chosen=CHOSEN, resume=False, overwrite=False, **changes
):
    changes = {"evaluates": False, "progress": False, **changes}
    sweep = Sweep(work, folder, **changes)
    jobs = plan(sweep, grid_variants(chosen, {}, seeds), resume, overwrite)
    return list(train_in_turn(sweep, jobs))


@pytest.mark.usefixtures("quick")
def test_every_run_equals_a_training_of_its_seed_alone(work, tmp_path):
    results = go(work, tmp_path / "several")
    assert [one.experiment.name for one in results] == NAMES
    assert [one.summary.steps for one in results] == [2 * STEPS] * 2
    training = dataclasses.replace(CHOSEN.training, seed=2)
    alone = dataclasses.replace(CHOSEN, name=NAMES[1], training=training)
    train(alone, work, tmp_path / "alone", progress=False)
    assert_same_run(tmp_path / "several", tmp_path / "alone", NAMES[1])
    arrays = [read_checkpoint(tmp_path / "several", name)[0] for name in NAMES]
    assert any((arrays[0][key] != arrays[1][key]).any() for key in arrays[0])


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_resuming_skips_finished_runs_and_trains_the_others(work, tmp_path):
    go(work, tmp_path / "whole")
    go(work, tmp_path / "parts", seeds=[5])
    results = go(work, tmp_path / "parts", resume=True)
    assert [one.summary is None for one in results] == [True, False]
    for name in NAMES:
        assert_same_run(tmp_path / "parts", tmp_path / "whole", name)


@pytest.mark.usefixtures("quick")
def test_resuming_continues_an_interrupted_run(work, tmp_path, monkeypatch):
    go(work, tmp_path / "whole")
    real, number = runs.open_run, []

    def interrupted(*arguments):
        number.append(0)
        if len(number) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "open_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            go(work, tmp_path / "parts")
    go(work, tmp_path / "parts", resume=True)
    for name in NAMES:
        assert_same_run(tmp_path / "parts", tmp_path / "whole", name)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_earlier_run_is_refused_before_any_training(work, tmp_path):
    go(work, tmp_path, seeds=[2])
    with pytest.raises(RunError, match="tiny-seed-2: a run is already present"):
        go(work, tmp_path)
    assert not (tmp_path / NAMES[0]).exists()
    results = go(work, tmp_path, overwrite=True)
    assert all(one.summary.steps == 2 * STEPS for one in results)


@pytest.mark.usefixtures("quick")
def test_finished_runs_of_other_settings_or_damaged_ones_are_one_line(work, tmp_path):
    go(work, tmp_path, seeds=[2])
    other = experiment(training={"epochs": 2, "batch_size": 4})
    with pytest.raises(RunError, match="other settings .training.batch_size was 8"):
        go(work, tmp_path, seeds=[2], chosen=other, resume=True)
    (tmp_path / "tiny-seed-2" / runs.CHECKPOINT).write_bytes(b"PK damaged")
    with pytest.raises(RunError, match="checkpoint is damaged") as caught:
        go(work, tmp_path, seeds=[2], resume=True)
    assert "\n" not in str(caught.value)


def test_a_seed_out_of_range_is_one_line(work, tmp_path):
    with pytest.raises(ConfigError, match=r"--seeds: training\.seed"):
        go(work, tmp_path, seeds=[1, 2**31])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_a_run_that_fails_is_named_and_the_others_are_trained(
    work, tmp_path, monkeypatch
):
    def fails(experiment, *arguments, **options):
        if experiment.name == NAMES[0]:
            raise TrainingError("the loss is not finite;\nlower the rate")
        return train(experiment, *arguments, **options)

    first, second = go(work, tmp_path, train_one=fails)
    assert first.fault == "the loss is not finite; lower the rate"
    assert first.summary is None
    assert (second.fault, second.summary.steps) == (None, 2 * STEPS)
    first, second = go(work, tmp_path, resume=True)
    assert first.summary.steps == 2 * STEPS
    assert (second.fault, second.summary) == (None, None)


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_an_interrupted_replacement_is_continued_and_not_begun_again(
    work, tmp_path, monkeypatch
):
    go(work, tmp_path, seeds=[2])
    sweep = Sweep(work, tmp_path, evaluates=False, progress=False)
    (variant,) = grid_variants(CHOSEN, {}, [2])
    (job,) = plan(sweep, [variant], resume=False, overwrite=True)
    calls = []

    def records(experiment, work, runs, resume, overwrite, progress):
        calls.append((resume, overwrite))
        if len(calls) == 1:
            half = dataclasses.replace(
                experiment.training, epochs=1
            )  # as if killed after one epoch
            half = dataclasses.replace(experiment, training=half)
            train(half, work, runs, resume, overwrite, progress)
            settings = tmp_path / experiment.name / "experiment.toml"
            text = settings.read_text().replace("epochs = 1", "epochs = 2")
            settings.write_text(text)
            raise KeyboardInterrupt
        return train(experiment, work, runs, resume, overwrite, progress)

    sweep = dataclasses.replace(sweep, train_one=records)
    with pytest.raises(KeyboardInterrupt):
        list(train_in_turn(sweep, [job]))
    (outcome,) = train_in_turn(sweep, [job])
    assert calls == [(False, True), (True, False)]
    assert outcome.summary.steps == 2 * STEPS


def test_runs_are_evaluated_on_the_validation_photos_once(work, tmp_path, monkeypatch):
    evaluated = []

    def evaluate(experiment, work, folder, split, progress):
        evaluated.append((experiment.name, split))
        scores = folder / experiment.name / "scores.json"
        scores.write_text(json.dumps({"split": split}))

    skip_graphs(monkeypatch)
    monkeypatch.setattr(sweeps, "evaluate", evaluate)
    go(work, tmp_path, evaluates=True)
    assert evaluated == [(name, "val") for name in NAMES]
    go(work, tmp_path, evaluates=True, resume=True)
    assert len(evaluated) == 2
    (tmp_path / NAMES[1] / "scores.json").write_text('{"split": "test"}')
    _, second = go(work, tmp_path, evaluates=True, resume=True)
    assert evaluated[2:] == [(NAMES[1], "val")]
    assert second.summary is None


def test_a_run_that_another_process_trains_fails_alone(work, tmp_path, monkeypatch):
    real = runs.lock_run
    monkeypatch.setattr(runs, "lock_run", lambda *a, seconds=0: real(*a))
    (variant,) = grid_variants(CHOSEN, {}, [2])
    sweep = Sweep(work, tmp_path, evaluates=False, progress=False)
    with real(variant, tmp_path):
        (outcome,) = train_in_turn(sweep, [Job(variant)])
    assert "another process is training this run" in outcome.fault
