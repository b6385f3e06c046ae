"""Runs of several seeds equal trainings of one seed, here and on a cluster."""

import contextlib
import dataclasses
import json
import logging
from pathlib import Path

import pytest
from tiny_run import experiment, prepare
from tiny_training import STEPS, assert_same_run, read_checkpoint, skip_graphs

from show_attend_tell.cluster import seeds as several
from show_attend_tell.cluster.seeds import (
    Job,
    Series,
    plan,
    run_trainer,
    train_in_turn,
    train_on_cluster,
)
from show_attend_tell.config import runs
from show_attend_tell.config.experiments import seed_variants
from show_attend_tell.evaluation.comparison import compare_runs
from show_attend_tell.runtime.errors import (
    ClusterError,
    ConfigError,
    FeatureError,
    RunError,
    TrainingError,
)
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
    series = Series(work, folder, **changes)
    jobs = plan(series, seed_variants(chosen, seeds), resume, overwrite)
    return list(train_in_turn(series, jobs))


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
def test_a_run_that_fails_is_named_and_the_others_are_trained(work, tmp_path):
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
def test_an_interrupted_replacement_is_continued_and_not_begun_again(work, tmp_path):
    go(work, tmp_path, seeds=[2])
    series = Series(work, tmp_path, evaluates=False, progress=False)
    (variant,) = seed_variants(CHOSEN, [2])
    (job,) = plan(series, [variant], resume=False, overwrite=True)
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

    series = dataclasses.replace(series, train_one=records)
    with pytest.raises(KeyboardInterrupt):
        list(train_in_turn(series, [job]))
    (outcome,) = train_in_turn(series, [job])
    assert calls == [(False, True), (True, False)]
    assert outcome.summary.steps == 2 * STEPS


def test_runs_are_evaluated_on_the_validation_photos_once(work, tmp_path, monkeypatch):
    evaluated = []

    def evaluate(experiment, work, folder, split, progress):
        evaluated.append((experiment.name, split))
        scores = folder / experiment.name / "scores.json"
        scores.write_text(json.dumps({"split": split}))

    skip_graphs(monkeypatch)
    monkeypatch.setattr(several, "evaluate", evaluate)
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
    (variant,) = seed_variants(CHOSEN, [2])
    series = Series(work, tmp_path, evaluates=False, progress=False)
    with real(variant, tmp_path):
        (outcome,) = train_in_turn(series, [Job(variant)])
    assert "another process is training this run" in outcome.fault


# On a cluster.


def jobs_of(series, chosen, resume=False):
    return plan(series, seed_variants(chosen, (5, 2)), resume, overwrite=False)


class Here:
    """The interface of a cluster, in this process."""

    processors = 2

    def __init__(self):
        self.started, self.sights, self.lost = [], (), ()

    def processors_each(self, workers):
        return 1

    def run(self, job, arguments, items, workers, processors, keep_going):
        assert keep_going
        train_run = job(*arguments)
        self.started.append(workers)
        self.sights = [item.visible for item in items]
        for item in items:
            lost = item.payload.experiment.name in self.lost
            yield item, ClusterError("lost") if lost else train_run(item.payload)


@pytest.fixture
def here(monkeypatch):
    here = Here()

    @contextlib.contextmanager
    def connected(address):
        yield here

    monkeypatch.setattr(several, "connected", connected)
    return here


ONE_EPOCH = experiment(training={"epochs": 1})


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_a_cluster_trains_the_same_runs_and_keeps_finished_ones(work, tmp_path, here):
    series = Series(work, tmp_path / "cluster", evaluates=False, progress=False)
    here.lost = ("tiny-seed-2",)
    first, lost = train_on_cluster(series, jobs_of(series, ONE_EPOCH), "auto")
    assert (first.fault, first.summary.steps) == (None, STEPS)
    assert (lost.experiment.name, lost.fault) == ("tiny-seed-2", "lost")
    here.lost = ()
    again = jobs_of(series, ONE_EPOCH, resume=True)
    kept, second = train_on_cluster(series, again, "auto")
    assert (kept.fault, kept.summary) == (None, None)
    assert second.summary.steps == STEPS
    assert here.started == [2, 1]  # no more workers than runs
    go(work, tmp_path / "here", chosen=ONE_EPOCH)
    for name in NAMES:
        assert_same_run(tmp_path / "cluster", tmp_path / "here", name)
    finished = jobs_of(series, ONE_EPOCH, resume=True)
    assert len(list(train_on_cluster(series, finished, "nowhere"))) == 2


def test_workers_must_see_the_prepared_data_and_the_run_folders(work, tmp_path, here):
    here.lost = tuple(NAMES)
    series = Series(work, tmp_path / "runs", progress=False)
    assert len(list(train_on_cluster(series, jobs_of(series, ONE_EPOCH), "auto"))) == 2
    names = [[Path(path).name for path, _ in sights] for sights in here.sights]
    assert names == [[f".{name}.lock", "manifest.jsonl"] for name in NAMES]


def test_absent_features_and_a_run_in_use_are_found_before_any_training(
    work, tmp_path, here, monkeypatch
):
    other = experiment(encoder={"layer": "first"})
    series = Series(work, tmp_path / "runs", progress=False)
    with pytest.raises(FeatureError, match="no such feature file"):
        list(train_on_cluster(series, jobs_of(series, other), "auto"))

    def taken(*arguments, seconds):
        raise RunError("another process is training this run")

    monkeypatch.setattr(several.runs, "lock_run", taken)
    with pytest.raises(RunError, match="another process"):
        list(train_on_cluster(series, jobs_of(series, ONE_EPOCH), "auto"))
    assert here.started == []


def test_a_worker_has_the_working_directory_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    run_trainer(Series(tmp_path, tmp_path), str(tmp_path))
    assert Path.cwd() == tmp_path
    run_trainer(Series(tmp_path, tmp_path), str(tmp_path / "absent"))
    assert Path.cwd() == tmp_path


# Real workers of a real cluster.

# Updates take milliseconds; the checkpoint of each is kept.
LONG = experiment(
    training={"epochs": 20, "checkpoint_every": 1, "validate_every": 20 * STEPS},
    decoding={"validation_beam": 1, "beam": 1, "max_words": 3},
)


@pytest.mark.cluster
def test_a_killed_worker_continues_its_run_and_the_runs_are_compared(
    work, tmp_path, nodes, caplog
):
    from local_cluster import Interruptions, kill_worker_with

    nodes.ensure(2)
    folder = tmp_path / "cluster"
    killed = []

    def kill_the_worker_that_trains():
        killed.append(next(folder.glob("*/checkpoint.npz")).parent.name)
        kill_worker_with(folder / f".{killed[0]}.lock")

    actions = [(1, kill_the_worker_that_trains)]
    series = Series(work, folder, progress=False)
    jobs = jobs_of(series, LONG)
    kills = Interruptions(folder, "*/checkpoint.npz", actions)
    with kills, caplog.at_level(logging.WARNING):
        outcomes = list(train_on_cluster(series, jobs, nodes.address, workers=2))
    assert kills.done == 1
    assert caplog.text.count("a worker has ended") == 1
    assert [one.fault for one in outcomes] == [None, None]
    names = [job.experiment.name for job in jobs]
    # A run that had begun again would have replaced the first log.
    logs = [len(list((folder / name).glob("events.*"))) for name in names]
    assert sorted(zip(logs, names, strict=True))[1] == (2, killed[0])
    assert read_checkpoint(folder, killed[0])[1]["step"] == 20 * STEPS
    alone = jobs[names.index(killed[0])].experiment
    train(alone, work, tmp_path / "alone", progress=False)
    assert_same_run(folder, tmp_path / "alone", killed[0])
    (row,) = compare_runs([folder / name for name in names], work).rows
    assert (row.label, row.seeds) == ("tiny", (5, 2))
    again = jobs_of(series, LONG, resume=True)
    outcomes = list(train_on_cluster(series, again, nodes.address))
    assert [(one.summary, one.fault) for one in outcomes] == [(None, None)] * 2
