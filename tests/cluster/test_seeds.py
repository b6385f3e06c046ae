"""Runs of a sweep by the workers of a cluster, one of which is killed."""

import contextlib
import logging
from pathlib import Path

import pytest
from tiny_run import experiment, prepare
from tiny_training import STEPS, assert_same_run, read_checkpoint, skip_graphs

from show_attend_tell.cluster import seeds as on_cluster
from show_attend_tell.cluster.seeds import make_worker, train_on_cluster
from show_attend_tell.cluster.worker import visible
from show_attend_tell.config.grid import grid_variants, parse_grid
from show_attend_tell.evaluation.comparison import compare_runs
from show_attend_tell.runtime.errors import ClusterError, FeatureError, RunError
from show_attend_tell.training.sweeps.runs import Sweep, plan, train_in_turn
from show_attend_tell.training.train import train


def jobs_of(sweep, chosen, axes=(), seeds=(5, 2), resume=False):
    variants = grid_variants(chosen, parse_grid(axes), seeds)
    return plan(sweep, variants, resume, overwrite=False)


class Here:
    """The interface of a cluster, in this process."""

    processors = 2

    def __init__(self):
        self.started, self.seen, self.lost = [], (), ()  # seen: by all workers

    def processors_each(self, workers):
        return 1

    def run(self, make, arguments, tasks, workers, processors, keep_going):
        assert keep_going
        worker = make(*arguments)
        self.started.append(workers)
        self.seen = tasks[0].visible
        for task in tasks:
            assert task.visible == self.seen
            lost = task.payload.experiment.name in self.lost
            yield task, ClusterError("lost") if lost else worker.run(task.payload)


@pytest.fixture
def here(monkeypatch):
    here = Here()

    @contextlib.contextmanager
    def connected(address):
        yield here

    monkeypatch.setattr(on_cluster, "connected", connected)
    return here


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"))


@pytest.fixture
def quick(monkeypatch):
    skip_graphs(monkeypatch)


CHOSEN = experiment(training={"epochs": 1})


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_every_run_equals_a_training_here_and_finished_ones_are_kept(
    work, tmp_path, here
):
    sweep = Sweep(work, tmp_path / "cluster", evaluates=False, progress=False)
    here.lost = ("tiny-seed-2",)
    first, lost = train_on_cluster(sweep, jobs_of(sweep, CHOSEN), "auto")
    assert (first.fault, first.summary.steps) == (None, STEPS)
    assert (lost.experiment.name, lost.fault) == ("tiny-seed-2", "lost")
    here.lost = ()
    again = jobs_of(sweep, CHOSEN, resume=True)
    kept, second = train_on_cluster(sweep, again, "auto")
    assert (kept.fault, kept.summary) == (None, None)
    assert second.summary.steps == STEPS
    assert here.started == [2, 1]  # no more workers than runs
    alone = Sweep(work, tmp_path / "here", evaluates=False, progress=False)
    list(train_in_turn(alone, jobs_of(alone, CHOSEN)))
    for name in ("tiny-seed-5", "tiny-seed-2"):
        assert_same_run(tmp_path / "cluster", tmp_path / "here", name)
    finished = jobs_of(sweep, CHOSEN, resume=True)
    assert len(list(train_on_cluster(sweep, finished, "nowhere"))) == 2


def test_workers_must_see_the_data_the_run_folders_and_the_initial_model(
    work, tmp_path, here, monkeypatch
):
    model = tmp_path / "model.keras"
    model.write_bytes(b"weights")
    monkeypatch.chdir(tmp_path)
    here.lost = ("tiny-seed-5", "tiny-seed-2")
    chosen = experiment(training={"init_from": "model.keras"})
    sweep = Sweep(work, tmp_path / "runs", progress=False)
    assert len(list(train_on_cluster(sweep, jobs_of(sweep, chosen), "auto"))) == 2
    names = [Path(path).name for path, _ in here.seen]
    assert {"manifest.jsonl", "vocabulary.json", "features-Tiny-last.h5"} <= set(names)
    assert {".tiny-seed-5.lock", ".tiny-seed-2.lock", "model.keras"} <= set(names)
    assert visible(model) in here.seen


def test_absent_features_and_a_run_in_use_are_found_before_any_training(
    work, tmp_path, here, monkeypatch
):
    other = experiment(encoder={"layer": "first"})
    sweep = Sweep(work, tmp_path / "runs", progress=False)
    with pytest.raises(FeatureError, match="no such feature file"):
        list(train_on_cluster(sweep, jobs_of(sweep, other), "auto"))

    def taken(*arguments, seconds):
        raise RunError("another process is training this run")

    monkeypatch.setattr(on_cluster.runs, "lock_run", taken)
    with pytest.raises(RunError, match="another process"):
        list(train_on_cluster(sweep, jobs_of(sweep, CHOSEN), "auto"))
    assert here.started == []


def test_a_worker_has_the_working_directory_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    make_worker(Sweep(tmp_path, tmp_path), str(tmp_path))
    assert Path.cwd() == tmp_path
    make_worker(Sweep(tmp_path, tmp_path), str(tmp_path / "absent"))
    assert Path.cwd() == tmp_path


# Real workers of a real cluster.

# Updates take milliseconds; the checkpoint of each is kept.
LONG = experiment(
    training={"epochs": 20, "checkpoint_every": 1, "validate_every": 20 * STEPS},
    decoding={"validation_beam": 1, "beam": 1, "max_words": 3},
)
RATE = "training.learning_rate=0.02,0.01"


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
    sweep = Sweep(work, folder, progress=False)
    jobs = jobs_of(sweep, LONG, [RATE], [1])
    kills = Interruptions(folder, "*/checkpoint.npz", actions)
    with kills, caplog.at_level(logging.WARNING):
        outcomes = list(train_on_cluster(sweep, jobs, nodes.address, workers=2))
    assert kills.done == 1
    assert caplog.text.count("a worker has ended") == 1
    assert [one.fault for one in outcomes] == [None, None]
    names = [job.experiment.name for job in jobs]
    assert names[0] == "tiny-learning_rate-0.02-seed-1"
    # A run that had begun again would have replaced the first log.
    logs = [len(list((folder / name).glob("events.*"))) for name in names]
    assert sorted(zip(logs, names, strict=True))[1] == (2, killed[0])
    assert read_checkpoint(folder, killed[0])[1]["step"] == 20 * STEPS
    alone = jobs[names.index(killed[0])].experiment
    train(alone, work, tmp_path / "alone", progress=False)
    assert_same_run(folder, tmp_path / "alone", killed[0])
    table = compare_runs([folder / name for name in names], work)
    assert [row.label for row in table.rows] == names
    again = jobs_of(sweep, LONG, [RATE], [1], resume=True)
    outcomes = list(train_on_cluster(sweep, again, nodes.address))
    assert [(one.summary, one.fault) for one in outcomes] == [(None, None)] * 2


@pytest.mark.cluster
def test_run_folders_that_a_node_cannot_see_are_one_line_before_any_training(
    work, tmp_path, nodes, monkeypatch
):
    nodes.ensure(1)
    sweep = Sweep(work, tmp_path, progress=False)
    monkeypatch.setattr(on_cluster, "visible", lambda path: (str(path), 1))
    jobs = jobs_of(sweep, CHOSEN)
    with pytest.raises(
        ClusterError, match=r"^node .*: not the file that the"
    ) as caught:
        list(train_on_cluster(sweep, jobs, nodes.address))
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
