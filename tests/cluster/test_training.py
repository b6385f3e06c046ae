"""Several workers of a cluster train together on JAX, while one is killed."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import tiny_run
from new_process import python
from refusals import refused
from tiny_training import read_checkpoint

from show_attend_tell.cluster import training as cluster
from show_attend_tell.cluster.training import train_on_cluster
from show_attend_tell.config.runs import CHECKPOINT
from show_attend_tell.config.settings import experiment_to_toml
from show_attend_tell.runtime.errors import ConfigError, SetupError, TrainingError

pytest.importorskip("jax", reason="needs the packages of '.[jax]'")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Ray's own
]
UPDATES = {"epochs": 7, "clip_norm": 0.5, "average_decay": 0.9}
SOFT = {"model": {"dropout": 0.3}, "training": UPDATES}
HARD = {
    "model": {"dropout": 0.3, "attention": "hard"},
    "training": UPDATES,
    "hard": {"drawn_per": "minibatch", "samples": 2, "baseline_decay": 0.8},
}
REWARD = {"objective": "cider", "batch_size": 12, "hypotheses": 2}
CIDER = {"model": {"dropout": 0.3}, "training": {**UPDATES, **REWARD}}
ALONE = """
import sys
from show_attend_tell.runtime.keras_startup import start_keras
start_keras()
from show_attend_tell.config.settings import read_experiment_file
from show_attend_tell.training.train import train
file, work, folder, resume = sys.argv[1:]
train(read_experiment_file(file), work, folder, resume == "resume", progress=False)
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tiny_run.prepare(tmp_path_factory.mktemp("work"))


def train_alone(settings, work, folder: Path, resume=False):
    """Train on JAX in one process."""
    file = folder.with_suffix(".toml")
    file.write_text(experiment_to_toml(settings))
    env = {**os.environ, "KERAS_BACKEND": "jax"}
    mode = "resume" if resume else "begin"
    done = python("-c", ALONE, file, work, folder, mode, env=env)
    assert done.returncode == 0, done.stderr


def assert_close(one: Path, two: Path):
    """Compare the checkpoints: weights, moments, averages, baseline, position."""
    ours, position = read_checkpoint(one)
    theirs, other = read_checkpoint(two)
    assert other["step"] == position["step"]
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_allclose(
            theirs[name], values, rtol=0, atol=1e-5, err_msg=name
        )


def test_a_killed_worker_changes_no_weight(tmp_path, work, nodes):
    from local_cluster import Interruptions, processes

    settings = tiny_run.experiment(**SOFT)
    nodes.ensure(2)
    killed = []

    def kill():
        process = processes(b"RayTrainWorker")[-1]
        killed.append(process)
        os.kill(process, signal.SIGKILL)

    kills = Interruptions(tmp_path / "two" / "tiny", CHECKPOINT, [(1, kill)])
    with kills:
        done = train_on_cluster(
            settings, work, tmp_path / "two", cluster=nodes.address, count=2
        )
    assert kills.done == len(killed) == 1
    assert (done.steps, done.stopped) == (21, "all epochs done")
    train_alone(settings, work, tmp_path / "one")
    assert_close(tmp_path / "one", tmp_path / "two")
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"tiny"}


@pytest.mark.parametrize("changes", [HARD, CIDER], ids=["hard", "cider"])
def test_two_workers_have_the_weights_of_one(tmp_path, work, nodes, changes):
    settings = tiny_run.experiment(**changes)
    nodes.ensure(2)
    train_on_cluster(settings, work, tmp_path / "two", cluster=nodes.address, count=2)
    assert len(list((tmp_path / "two" / "tiny").glob("events*"))) == 1
    train_alone(settings, work, tmp_path / "one")
    assert_close(tmp_path / "one", tmp_path / "two")


def test_a_run_is_resumed_with_another_number_of_workers(tmp_path, work, nodes):
    def settings(epochs):
        return tiny_run.experiment(
            model={"dropout": 0.3}, training={**UPDATES, "epochs": epochs}
        )

    whole = tmp_path / "whole"
    mixed = tmp_path / "mixed"
    for epochs in (1, 2, 3):  # in as many parts, as they end the decay of the rate
        train_alone(settings(epochs), work, whole, resume=epochs > 1)
    nodes.ensure(2)
    place = {"cluster": nodes.address}
    train_on_cluster(settings(1), work, mixed, **place, count=2)
    train_alone(settings(2), work, mixed, resume=True)
    train_on_cluster(settings(3), work, mixed, resume=True, **place, count=1)
    assert_close(whole, mixed)


def test_a_batch_that_workers_do_not_divide_writes_nothing(tmp_path, work, nodes):
    nodes.ensure(2)
    place = {"cluster": nodes.address, "count": 2}
    odd = tiny_run.experiment(training={"batch_size": 7})
    with refused(ConfigError, "`training.batch_size` must be a multiple of the 2 work"):
        train_on_cluster(odd, work, tmp_path / "runs", **place)
    cider = tiny_run.experiment(training={**REWARD, "batch_size": 6})
    with refused(ConfigError, "`batch_size / hypotheses` must be .* Received: 3"):
        train_on_cluster(cider, work, tmp_path / "runs", **place)
    assert not (tmp_path / "runs").exists()


def test_faults_of_workers_are_one_line(tmp_path, work, nodes, monkeypatch):
    nodes.ensure(2)
    settings = tiny_run.experiment()
    with refused(SetupError, "at most the 2 processors.*Received: 3"):
        train_on_cluster(settings, work, tmp_path, cluster=nodes.address, count=3)
    other = tiny_run.prepare(tmp_path / "other")
    monkeypatch.setattr(cluster, "load_splits", lambda *arguments: None)
    (other / "made-up" / "manifest.jsonl").unlink()
    with refused(TrainingError, r"manifest\.jsonl: no such"):
        train_on_cluster(settings, other, tmp_path, cluster=nodes.address, count=2)
    assert not (tmp_path / "tiny" / CHECKPOINT).exists()
