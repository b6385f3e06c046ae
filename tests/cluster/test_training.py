"""Several workers of a cluster train together, while one is killed."""

import os
import signal

import numpy as np
import pytest
import tiny_run
from tiny_training import read_checkpoint

from show_attend_tell.cluster import training as cluster
from show_attend_tell.cluster.training import train_on_cluster
from show_attend_tell.config.runs import CHECKPOINT
from show_attend_tell.runtime.errors import SetupError, TrainingError
from show_attend_tell.training.train import train

SETTINGS = tiny_run.experiment(
    model={"dropout": 0.0},
    training={"epochs": 7, "clip_norm": 0.5, "average_decay": 0.9},
)
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Ray's own
]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tiny_run.prepare(tmp_path_factory.mktemp("work"))


def test_a_killed_worker_changes_no_weight(tmp_path, work, nodes):
    from local_cluster import Interruptions, processes

    nodes.ensure(2)
    killed = []

    def kill():
        (process, *_) = processes(b"RayTrainWorker")
        killed.append(process)
        os.kill(process, signal.SIGKILL)

    kills = Interruptions(tmp_path / "two" / "tiny", CHECKPOINT, [(1, kill)])
    with kills:
        done = train_on_cluster(
            SETTINGS, work, tmp_path / "two", cluster=nodes.address, count=2
        )
    assert kills.done == len(killed) == 1
    assert (done.steps, done.stopped) == (21, "all epochs done")
    train(SETTINGS, work, tmp_path / "one", progress=False)
    ours, position = read_checkpoint(tmp_path / "one")
    theirs, other = read_checkpoint(tmp_path / "two")
    assert other["step"] == position["step"]
    for name, values in ours.items():
        np.testing.assert_allclose(theirs[name], values, rtol=0, atol=1e-5)
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"tiny"}


def test_faults_of_workers_are_one_line(tmp_path, work, nodes, monkeypatch):
    other = tiny_run.prepare(tmp_path / "other")
    with pytest.raises(SetupError, match="at most the 2 processors.*Received: 3"):
        train_on_cluster(SETTINGS, work, tmp_path, cluster=nodes.address, count=3)
    monkeypatch.setattr(cluster, "load_splits", lambda *arguments: None)
    (other / "made-up" / "manifest.jsonl").unlink()
    with pytest.raises(TrainingError, match=r"manifest\.jsonl: no such"):
        train_on_cluster(SETTINGS, other, tmp_path, cluster=nodes.address, count=2)
    assert not (tmp_path / "tiny" / CHECKPOINT).exists()
