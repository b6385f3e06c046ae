"""A training on a cluster opens its run last; its workers run in this process."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from refusals import refused
from tiny_run import experiment, prepare
from tiny_training import (
    STEPS,
    assert_same_run,
    interrupt,
    interrupted,
    skip_graphs,
    start_run,
)

from show_attend_tell.cluster import training as cluster
from show_attend_tell.cluster.training import train_as_worker, train_on_cluster
from show_attend_tell.config.runs import MODEL
from show_attend_tell.runtime.errors import ConfigError, ModelFileError, TrainingError
from show_attend_tell.training.workers import ALONE, Workers

ABSENT = {"init_from": "absent"}
ITSELF = {"init_from": "tiny"}
TAUGHT = {
    "training": {"objective": "distil"},
    "distillation": {"teachers": ["tiny"]},
}


class Here:
    """A cluster of two processors."""

    gpus = 0
    processors = 2


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def started(work, tmp_path_factory):
    """A folder with a run of one epoch; not changed."""
    return start_run(work, tmp_path_factory.mktemp("started"))


@pytest.fixture
def runs(started, tmp_path):
    """A copy of that folder."""
    return Path(shutil.copytree(started, tmp_path / "runs"))


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Run the chief in this process, without the other workers."""

    def run_together(nodes, function, arguments, folder, count):
        workers = ALONE if count == 1 else Workers(count=count)
        return function(workers, **arguments)

    skip_graphs(monkeypatch)
    monkeypatch.setattr(
        cluster, "connected", lambda address: contextlib.nullcontext(Here())
    )
    monkeypatch.setattr(cluster, "run_together", run_together)


def train(work, runs, resume=False, overwrite=False, count=1, **changes):
    chosen = experiment(**changes)
    return train_on_cluster(
        chosen, work, runs, resume, overwrite, cluster="auto", count=count
    )


@pytest.mark.parametrize(
    ("error", "message", "count", "changes"),
    [
        (ModelFileError, "'absent': no such model", 1, {"training": ABSENT}),
        (ConfigError, "`training.init_from` must be", 1, {"training": ITSELF}),
        (ConfigError, "`distillation.teachers` must be", 1, TAUGHT),
        (ConfigError, "on several workers", 2, TAUGHT),
    ],
)
def test_no_run_is_replaced_by_a_training_that_workers_refuse(
    work, runs, error, message, count, changes
):
    before = {path.name: path.read_bytes() for path in (runs / "tiny").iterdir()}
    with refused(error, message):
        train(work, runs, overwrite=True, count=count, **changes)
    after = {path.name: path.read_bytes() for path in (runs / "tiny").iterdir()}
    assert after == before


def test_a_run_is_replaced_on_demand_only_and_the_driver_s_file_is_removed(work, runs):
    with refused(TrainingError, "a run is already present"):
        train(work, runs)
    changes = {"training": {"epochs": 2}}
    assert train(work, runs, overwrite=True, **changes).steps == 2 * STEPS
    assert [path.name for path in runs.iterdir()] == ["tiny"]
    assert train(work, runs, resume=True).steps == 3 * STEPS


def test_workers_that_are_started_again_continue_the_run_and_replace_it_once(
    work, started, runs, monkeypatch
):
    def fail_once(nodes, function, arguments, folder, count):
        with interrupted(interrupt, 2):
            function(ALONE, **arguments)
        return function(ALONE, **arguments)

    monkeypatch.setattr(cluster, "run_together", fail_once)
    train(work, runs, overwrite=True, training={"epochs": 1})
    logs = list((runs / "tiny").glob("events.*"))
    assert len(logs) == 2
    assert_same_run(started, runs)


def test_a_relative_initial_model_is_the_driver_s(work, started, tmp_path, monkeypatch):
    """Nodes are started in other folders."""
    driver = tmp_path / "driver"
    elsewhere = tmp_path / "elsewhere"
    for folder in (driver, elsewhere):
        folder.mkdir()
    shutil.copy(started / "tiny" / MODEL, driver / "base.safetensors")

    def start_elsewhere(nodes, function, arguments, folder, count):
        os.chdir(elsewhere)
        return function(ALONE, **arguments)

    monkeypatch.setattr(cluster, "run_together", start_elsewhere)
    monkeypatch.chdir(driver)
    chosen = {"init_from": "base.safetensors", "epochs": 1}
    assert train(work, tmp_path / "runs", training=chosen).steps == STEPS


def test_a_node_that_does_not_see_the_runs_is_refused(work, tmp_path):
    with refused(TrainingError, "the folder of the runs is not visible here"):
        train_as_worker(
            ALONE,
            experiment(),
            str(work),
            str(tmp_path),
            resume=False,
            overwrite=True,
            driver_file=str(tmp_path / ".driver-of-another-machine"),
            directory=str(tmp_path),
        )
    assert not (tmp_path / "tiny" / MODEL).exists()
