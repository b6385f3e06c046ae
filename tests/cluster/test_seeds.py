"""Several seeds: runs that fail, resume or exist already, here and on a cluster."""

import contextlib
import dataclasses
import json
import logging
import shutil
from pathlib import Path

import pytest
from refusals import refused
from tiny_run import experiment, prepare
from tiny_training import STEPS, assert_same_run, read_checkpoint, skip_graphs

from show_attend_tell.cluster import seeds as several
from show_attend_tell.cluster.seeds import (
    Series,
    open_runs,
    scores_file,
    train_on_cluster,
    train_variant,
)
from show_attend_tell.config import runs
from show_attend_tell.config.experiments import seed_variants
from show_attend_tell.evaluation.comparison import compare_runs
from show_attend_tell.runtime.errors import (
    ConfigError,
    DataError,
    ModelFileError,
    SetupError,
    TrainingError,
)
from show_attend_tell.training.train import train

CHOSEN = experiment(training={"epochs": 2})
ONE_EPOCH = experiment(training={"epochs": 1})
NAMES = ["tiny-seed-5", "tiny-seed-2"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"))


@pytest.fixture
def quick(monkeypatch):
    skip_graphs(monkeypatch)


def series_of(work, folder, **changes):
    return Series(work, folder, **{"evaluates": False, "progress": False, **changes})


def variants_of(series, chosen=CHOSEN, seeds=(5, 2), resume=False, overwrite=False):
    variants = seed_variants(chosen, seeds)
    open_runs(series, variants, resume, overwrite)
    return variants


def go(work, folder, changes=None, **options):
    series = series_of(work, folder, **(changes or {}))
    return [train_variant(series, one) for one in variants_of(series, **options)]


@pytest.fixture(scope="module")
def trained(work, tmp_path_factory):
    """A folder of runs of two seeds, an epoch each, and their results; not changed."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        skip_graphs(patch)
        return folder, go(work, folder, chosen=ONE_EPOCH)


@pytest.mark.usefixtures("quick")
def test_every_run_equals_a_training_of_its_seed_alone(work, trained, tmp_path):
    folder, results = trained
    assert [one.experiment.name for one in results] == NAMES
    assert [one.summary.steps for one in results] == [STEPS] * 2
    training = dataclasses.replace(ONE_EPOCH.training, seed=2)
    alone = dataclasses.replace(ONE_EPOCH, name=NAMES[1], training=training)
    train(alone, work, tmp_path / "alone", progress=False)
    assert_same_run(folder, tmp_path / "alone", NAMES[1])
    arrays = [read_checkpoint(folder, name)[0] for name in NAMES]
    assert any((arrays[0][key] != arrays[1][key]).any() for key in arrays[0])


@pytest.mark.nightly
@pytest.mark.usefixtures("quick")
def test_a_run_that_fails_is_named_and_resuming_trains_it_alone(work, tmp_path):
    def fails(experiment, *arguments, **options):
        if experiment.name == NAMES[0]:
            raise TrainingError("the loss is not finite;\nlower the rate")
        return train(experiment, *arguments, **options)

    first, second = go(work, tmp_path, {"train_one": fails})
    assert first.fault == "the loss is not finite; lower the rate"
    assert first.summary is None
    assert (second.fault, second.summary.steps) == (None, 2 * STEPS)
    first, second = go(work, tmp_path, resume=True)
    assert first.summary.steps == 2 * STEPS
    assert (second.fault, second.summary) == (None, None)


@pytest.mark.nightly
@pytest.mark.usefixtures("quick")
def test_earlier_runs_are_refused_before_any_training_or_replaced(work, tmp_path):
    go(work, tmp_path, seeds=[2])
    with pytest.raises(TrainingError, match="tiny-seed-2: a run is already present"):
        go(work, tmp_path)
    assert not (tmp_path / NAMES[0]).exists()
    other = experiment(training={"epochs": 2, "batch_size": 4})
    with pytest.raises(
        TrainingError, match="other settings .training.batch_size was 8"
    ):
        go(work, tmp_path, seeds=[2], chosen=other, resume=True)
    (tmp_path / NAMES[1] / runs.CHECKPOINT).write_bytes(b"PK damaged")
    with refused(TrainingError, "checkpoint is damaged"):
        go(work, tmp_path, seeds=[2], resume=True)
    (outcome,) = go(work, tmp_path, seeds=[2], overwrite=True)
    assert outcome.summary.steps == 2 * STEPS


def test_no_run_is_replaced_without_features_or_while_it_is_trained(
    work, tmp_path, monkeypatch
):
    real = runs.lock_run
    with pytest.raises(ConfigError, match=r"--seeds: training\.seed"):
        go(work, tmp_path, seeds=[1, 2**31])
    assert list(tmp_path.iterdir()) == []
    series = series_of(work, tmp_path, evaluates=True)
    other = experiment(encoder={"layer": "first"})
    model = tmp_path / NAMES[0] / runs.MODEL
    model.parent.mkdir()
    model.write_text("a model")
    with pytest.raises(DataError, match="no such feature file"):
        variants_of(series, other, overwrite=True)
    (variant,) = seed_variants(CHOSEN, [5])
    with runs.lock_run(variant, tmp_path):
        with pytest.raises(TrainingError, match="another process is training this run"):
            variants_of(series, overwrite=True)
        monkeypatch.setattr(runs, "lock_run", lambda *a, seconds=0: real(*a))
        fault = train_variant(series, variant).fault  # this run fails alone
        assert "another process is training this run" in fault
    assert model.read_text() == "a model"


@pytest.mark.usefixtures("quick")
def test_no_run_of_several_is_replaced_before_all_can_be_trained(
    work, trained, tmp_path
):
    folder = Path(shutil.copytree(trained[0], tmp_path / "runs"))
    models = [folder / name / runs.MODEL for name in NAMES]
    before = [model.read_bytes() for model in models]
    own = "must be a model outside of the runs that the training replaces"
    cases = [
        (ModelFileError, "'absent': no such model", {"init_from": "absent"}),
        (ConfigError, own, {"init_from": NAMES[1]}),
    ]
    for error, message, changes in cases:
        chosen = experiment(training=changes)
        with refused(error, message):
            go(work, folder, chosen=chosen, overwrite=True)
        assert [model.read_bytes() for model in models] == before
    (last,) = seed_variants(CHOSEN, [2])
    with runs.lock_run(last, folder):
        with refused(TrainingError, "another process is training this run"):
            go(work, folder, overwrite=True)
    assert [model.read_bytes() for model in models] == before


def record_evaluations(monkeypatch):
    """Record the run and the split of each evaluation, in place of captions."""
    evaluated = []

    def evaluate(experiment, work, folder, split, progress):
        evaluated.append((experiment.name, split))
        run = folder / experiment.name
        scores = {"split": split, "model_digest": runs.model_digest(run / runs.MODEL)}
        (run / "scores.json").write_text(json.dumps(scores))

    monkeypatch.setattr(several, "evaluate", evaluate)
    return evaluated


@pytest.mark.nightly
def test_runs_are_evaluated_on_the_validation_photos_once(work, tmp_path, monkeypatch):
    skip_graphs(monkeypatch)
    evaluated = record_evaluations(monkeypatch)
    go(work, tmp_path, {"evaluates": True})
    assert evaluated == [(name, "val") for name in NAMES]
    go(work, tmp_path, {"evaluates": True}, resume=True)
    assert len(evaluated) == 2
    (tmp_path / NAMES[1] / "scores.json").write_text('{"split": "test"}')
    _, second = go(work, tmp_path, {"evaluates": True}, resume=True)
    assert evaluated[2:] == [(NAMES[1], "val")]
    assert second.summary is None


@pytest.mark.usefixtures("quick")
def test_scores_of_an_earlier_model_do_not_count(work, trained, tmp_path, monkeypatch):
    shutil.copytree(trained[0] / NAMES[0], tmp_path / NAMES[0])
    evaluated = record_evaluations(monkeypatch)
    evaluates = {"evaluates": True}
    go(work, tmp_path, evaluates, chosen=ONE_EPOCH, seeds=[5], resume=True)
    assert evaluated == [(NAMES[0], "val")]
    with (tmp_path / NAMES[0] / runs.MODEL).open("ab") as model:
        model.write(b" ")  # another model than the scores'
    go(work, tmp_path, evaluates, chosen=ONE_EPOCH, seeds=[5], resume=True)
    assert evaluated == [(NAMES[0], "val")] * 2
    go(work, tmp_path, evaluates, chosen=ONE_EPOCH, seeds=[5], resume=True)
    assert evaluated == [(NAMES[0], "val")] * 2


@pytest.mark.usefixtures("quick")
def test_scores_of_likeliest_locations_are_compared_and_kept(
    work, tmp_path, monkeypatch
):
    chosen = experiment(training={"epochs": 1}, decoding={"locations": "likeliest"})
    changes = {"evaluates": True}
    (one,) = go(work, tmp_path, changes, chosen=chosen, seeds=[5])
    assert one.fault is None
    file = scores_file(series_of(work, tmp_path), one.experiment)
    assert compare_runs([file], work, tmp_path).photos == 4
    evaluated = record_evaluations(monkeypatch)
    go(work, tmp_path, changes, chosen=chosen, seeds=[5], resume=True)
    assert evaluated == []


# On a cluster.


class Here:
    """The interface of a cluster, in this process."""

    processors = 2

    def __init__(self):
        self.started, self.files, self.lost = [], (), ()

    def processors_each(self, workers):
        return 1

    def run(self, job, arguments, items, workers, processors, keep_going):
        assert keep_going
        train_run = job(*arguments)
        self.started.append(workers)
        self.files = [item.files for item in items]
        for item in items:
            lost = item.payload.name in self.lost
            yield item, SetupError("lost") if lost else train_run(item.payload)


@pytest.fixture
def here(monkeypatch):
    here = Here()
    nullcontext = contextlib.nullcontext
    monkeypatch.setattr(several, "connected", lambda address: nullcontext(here))
    return here


def go_there(series, chosen=ONE_EPOCH, resume=False):
    variants = variants_of(series, chosen, resume=resume)
    return list(train_on_cluster(series, variants, "auto"))


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_a_cluster_trains_the_same_runs_and_keeps_finished_ones(work, tmp_path, here):
    series = series_of(work, tmp_path / "cluster")
    here.lost = ("tiny-seed-2",)
    first, lost = go_there(series)
    assert (first.fault, first.summary.steps) == (None, STEPS)
    assert (lost.experiment.name, lost.fault) == ("tiny-seed-2", "lost")
    here.lost = ()
    kept, second = go_there(series, resume=True)
    assert (kept.fault, kept.summary) == (None, None)
    assert second.summary.steps == STEPS
    assert len(go_there(series, resume=True)) == 2
    assert here.started == [2, 1]  # no more workers than runs, none for finished ones
    go(work, tmp_path / "here", chosen=ONE_EPOCH)
    for name in NAMES:
        assert_same_run(tmp_path / "cluster", tmp_path / "here", name)


def test_workers_must_see_the_prepared_data_and_the_run_folders(work, tmp_path, here):
    here.lost = tuple(NAMES)
    series = series_of(work, tmp_path / "runs", evaluates=True)
    assert len(go_there(series)) == 2
    names = [[Path(file).name for file in files] for files in here.files]
    assert [name[1:] for name in names] == [["manifest.jsonl"]] * len(NAMES)
    assert all(name[0].startswith(".driver-") for name in names)
    assert not list((tmp_path / "runs").glob(".driver-*"))


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
    folder, killed = tmp_path / "cluster", []

    def kill_the_worker_that_trains():
        killed.append(next(folder.glob("*/checkpoint.safetensors")).parent.name)
        kill_worker_with(folder / f".{killed[0]}.lock")

    series = series_of(work, folder, evaluates=True)
    variants = variants_of(series, LONG)
    actions = [(1, kill_the_worker_that_trains)]
    kills = Interruptions(folder, "*/checkpoint.safetensors", actions)
    with kills, caplog.at_level(logging.WARNING):
        outcomes = list(train_on_cluster(series, variants, nodes.address, workers=2))
    assert kills.done == 1
    assert caplog.text.count("a worker has ended") == 1
    assert [one.fault for one in outcomes] == [None, None]
    # A run that had begun again would have replaced the first log.
    logs = [len(list((folder / name).glob("events.*"))) for name in NAMES]
    assert sorted(zip(logs, NAMES, strict=True))[1] == (2, killed[0])
    assert read_checkpoint(folder, killed[0])[1]["step"] == 20 * STEPS
    alone = variants[NAMES.index(killed[0])]
    train(alone, work, tmp_path / "alone", progress=False)
    assert_same_run(folder, tmp_path / "alone", killed[0])
    (row,) = compare_runs([folder / name for name in NAMES], work).rows
    assert (row.label, row.seeds) == ("tiny", (5, 2))
    again = variants_of(series, LONG, resume=True)
    outcomes = list(train_on_cluster(series, again, nodes.address))
    assert [(one.summary, one.fault) for one in outcomes] == [(None, None)] * 2
