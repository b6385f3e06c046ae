"""Two processes train together, compared with one."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_run import experiment
from tiny_training import read_checkpoint

from show_attend_tell.config.settings import experiment_to_toml

# The time limit guards against processes that wait for each other for ever.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]


def free_addresses(count: int) -> list[str]:
    """Return addresses with free ports."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()
    return addresses


class Training:
    """The same training in several processes.

    Args:
        folder: the runs' folder is ``folder / "runs"``, the settings are written here.
        work: the prepared data, or a list with the data of each worker.
        count: number of workers.
        code: run in every process before the training, such as patches.
        options: further options of ``train``, or a list with each worker's options.
        changes: changed settings of the tiny experiment.
    """

    def __init__(self, folder, work, count=2, code="", options=(), **changes):
        folder.mkdir(exist_ok=True)
        file = folder / "tiny.toml"
        file.write_text(experiment_to_toml(experiment(**changes)))
        works = work if isinstance(work, list) else [work] * count
        every = options if isinstance(options, list) else [options] * count
        addresses = free_addresses(count)
        self.folder, self.runs, self.processes = folder, folder / "runs", []
        paths = [str(ROOT), str(ROOT / "tests" / "support")]
        for rank, (place, added) in enumerate(zip(works, every, strict=True)):
            script = f"import sys; sys.path[:0] = {paths}; rank = {rank}\n{code}\n"
            script += "from show_attend_tell.cli.main import main; main()"
            arguments = ["train", "-e", file, "--work", place, "--runs", self.runs]
            task = {"type": "worker", "index": rank}
            config = {"cluster": {"worker": addresses}, "task": task}
            env = {
                **{k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
                **({"TF_CONFIG": json.dumps(config)} if count > 1 else {}),
                **{"TF_NUM_INTRAOP_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            }
            command = [sys.executable, "-c", script, *map(str, [*arguments, *added])]
            # Into files: a process whose pipe is full would block the others.
            with self._file("out", rank).open("w") as out:
                with self._file("err", rank).open("w") as err:
                    process = subprocess.Popen(command, env=env, stdout=out, stderr=err)
            self.processes.append(process)

    def _file(self, kind: str, rank: int) -> Path:
        return self.folder / f"{kind}-{rank}.txt"

    def end(self) -> list[tuple[int, str, str]]:
        """Return exit status, output and errors of each process."""
        try:
            codes = [process.wait() for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
                process.wait()
        return [
            (code, *(self._file(kind, rank).read_text() for kind in ("out", "err")))
            for rank, code in enumerate(codes)
        ]


# Write the values of each update, and skip captions.
RECORD = """
import json, pathlib, pytest, sys, tiny_training
tiny_training.skip_captions(pytest.MonkeyPatch())
from show_attend_tell.training.tensorboard_log import TrainingLog
folder = pathlib.Path(sys.argv[sys.argv.index("--runs") + 1]).parent
def write(self, step, values, optimizer, bar):
    logged = {name: float(value) for name, value in values.items()}
    logged |= {"step": step, "norm": float(optimizer.gradient_norm)}
    with open(folder / f"updates-{rank}.jsonl", "a") as file:
        file.write(json.dumps(logged) + chr(10))
TrainingLog.log_update = write
"""
# Send a signal to a worker after an update.
STOP = """
import os, signal
from show_attend_tell.training.workers import Workers
checked = Workers.raise_if_ended
def check(self, done=[0]):
    done[0] += 1
    if rank == {rank} and done[0] == {step}:
        os.kill(os.getpid(), {number})
    checked(self)
Workers.raise_if_ended = check
"""
UPDATES = {"epochs": 7, "clip_norm": 0.5, "average_decay": 0.9}
PLAIN = {"model": {"dropout": 0.0}, "training": UPDATES}
HARD = {
    "model": {"dropout": 0.0, "attention": "hard"},
    "training": UPDATES,
    "hard": {"drawn_per": "minibatch", "samples": 2, "baseline_decay": 0.8},
}
REWARD = {"objective": "cider", "batch_size": 12, "hypotheses": 2, "epochs": 10}
CIDER = {"model": {"dropout": 0.0}, "training": {**UPDATES, **REWARD}}


def recorded(folder, rank=0):
    lines = (folder / f"updates-{rank}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def train(folder, work, count, options=(), **changes):
    results = Training(folder, work, count, RECORD, options, **changes).end()
    assert [code for code, _, _ in results] == [0] * count, results
    return folder


def assert_close(one, two):
    """Compare the checkpoints: weights, moments, averages, baseline, position."""
    (ours, position), (theirs, other) = (
        read_checkpoint(f / "runs") for f in (one, two)
    )
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_allclose(
            theirs[name], values, rtol=0, atol=1e-5, err_msg=name
        )
    for key, value in position.items():
        close = isinstance(value, float)
        assert other[key] == (pytest.approx(value, abs=1e-2) if close else value), key


@pytest.mark.parametrize("changes", [PLAIN, HARD, CIDER], ids=["soft", "hard", "cider"])
def test_two_workers_have_the_losses_and_weights_of_one(tmp_path, work, changes):
    one = train(tmp_path / "one", work, 1, **changes)
    two = train(tmp_path / "two", work, 2, **changes)
    losses, others = recorded(one), recorded(two)
    assert len(losses) == len(others) >= 20
    for ours, theirs in zip(losses, others, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            # The variance of the rewards, a difference of squares, differs by more.
            near = 1e-5 if "variance" not in name else 1e-4
            assert theirs[name] == pytest.approx(value, rel=near, abs=near), name
    assert max(values["norm"] for values in losses) > 0.5  # clipped
    assert_close(one, two)
    assert not (two / "updates-1.jsonl").exists()
    assert len(list((two / "runs" / "tiny").glob("events*"))) == 1


def test_a_checkpoint_of_one_worker_is_continued_by_two_and_the_reverse(tmp_path, work):
    whole = train(tmp_path / "whole", work, 1, **PLAIN)
    mixed = tmp_path / "mixed"
    stop = RECORD + STOP.format(step=5, rank=0, number="signal.SIGTERM")
    (ended,) = Training(mixed, work, 1, stop, **PLAIN).end()
    assert ended[0] == 143
    stop = RECORD + STOP.format(step=6, rank=1, number="signal.SIGTERM")
    both = Training(mixed, work, 2, stop, ("--resume",), **PLAIN).end()
    # The worker that was asked to end, and the other one after the same update.
    assert [code for code, _, _ in both] == [130, 143]
    assert read_checkpoint(mixed / "runs")[1]["step"] == 12
    for (_, _, errors), word in zip(both, ("interrupted", "terminated"), strict=True):
        assert errors.splitlines()[-1].startswith(f"{word}; continue with --resume")
    train(mixed, work, 1, ("--resume",), **PLAIN)
    assert_close(whole, mixed)


def test_a_killed_worker_ends_the_others_in_one_line(tmp_path, work):
    kill = RECORD + STOP.format(step=4, rank=1, number="signal.SIGKILL")
    (chief, other) = Training(tmp_path / "x", work, 2, kill, **PLAIN).end()
    assert (chief[0], other[0]) == (1, -signal.SIGKILL)
    line = chief[2].splitlines()[-1]
    assert line.startswith("error: worker 0: another worker has ended or does not")
    assert read_checkpoint(tmp_path / "x" / "runs")[1]["step"] == 3


def test_workers_that_differ_are_one_line_on_each(tmp_path, work):
    version = 'show_attend_tell.__version__ = "0.0.1" if rank else "0.0.2"'
    code = f"import show_attend_tell; {version}"
    for line in last_lines(Training(tmp_path / "version", work, 2, code)):
        assert "worker 0's version 0.0.2. Received: version 0.0.1; " in line
    absent = [work, tmp_path / "absent"]
    lines = last_lines(Training(tmp_path / "features", absent, 2))
    assert lines[0].startswith("error: worker 1 on ")
    assert all("absent" in line and ".h5: " in line for line in lines)
    elsewhere = [[], ["--runs", str(tmp_path / "other")]]
    lines = last_lines(Training(tmp_path / "runs", work, 2, "", elsewhere))
    assert all("the run folder is not visible here" in line for line in lines)


def last_lines(training):
    results = training.end()
    assert [code for code, _, _ in results] == [1, 1], results
    return [errors.splitlines()[-1] for _, _, errors in results]
