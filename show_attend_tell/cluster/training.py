"""Train a captioner in several workers: on a Ray cluster, or joined by ``TF_CONFIG``.

On a cluster Ray Train starts the workers together and sets ``TF_CONFIG`` in each. If a
worker ends, Ray Train stops the others and starts all again, up to :data:`_FAILURES`
times; they continue from the last checkpoint.

TensorFlow waits for absent workers without a limit, and cannot be interrupted
meanwhile. Therefore the workers first meet at the chief's address: each sends its rank,
and the chief answers when all have come.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from show_attend_tell.cluster.nodes import Sight, require_visible, visible
from show_attend_tell.cluster.pool import connected
from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.splits import load_splits, open_features
from show_attend_tell.runtime.errors import (
    ClusterError,
    ShowAttendTellError,
    TrainingError,
    one_line,
)
from show_attend_tell.runtime.tensorflow_startup import start_keras
from show_attend_tell.training.position import Summary

if TYPE_CHECKING:
    from show_attend_tell.training.workers import Workers

JOIN_SECONDS = 600.0  # in which all workers must start
_POLL_SECONDS = 0.2
_READY = b"ready"
_FAILURES = 5  # restarts of a training
_RAY = ".ray"  # begins the name of the folder for Ray's own files


def train_on_cluster(
    experiment: Experiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    *,
    cluster: str,
    count: int | None = None,
) -> Summary:
    """Train an experiment on several workers of a Ray cluster.

    Args:
        experiment: the settings.
        work: folder of prepared data, which every node sees.
        runs_folder: folder of the run folder, which every node sees.
        resume: continue from the run's checkpoint.
        overwrite: replace an earlier run of the same name.
        cluster: see :func:`cluster.pool.connected`.
        count: number of workers; by default one per processor.

    Raises:
        ClusterError: the cluster cannot be used, or a worker differs or has failed.
        RunError, FeatureError, ManifestError: see :func:`training.train.train`.
    """
    with open_features(experiment, work) as reader:  # before a run is replaced
        load_splits(experiment, work, ("train", "val"), reader)
    with runs.lock_run(experiment, runs_folder):
        folder = runs.open_run(experiment, runs_folder, resume, overwrite)
        arguments = {
            "experiment": experiment,
            "work": os.path.abspath(work),
            "runs_folder": os.path.abspath(runs_folder),
            "settings": visible(folder / runs.SETTINGS),
        }
        ray_folder = folder.absolute().with_name(f"{_RAY}-{folder.name}")
        summary, fault = run_together(
            cluster, train_as_worker, arguments, ray_folder, count
        )
    if fault is not None:
        raise ClusterError(fault)
    return summary


def train_as_worker(
    experiment: Experiment, work: str, runs_folder: str, settings: Sight
) -> tuple[Summary | None, str | None]:
    """Train in one of the workers, from the run's checkpoint if there is one.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder.
        settings: the run's settings, which the driver has written.

    Returns:
        The result and None, or None and the line of an error that would occur again.

    Raises:
        ClusterError: another worker has ended, so that all must start again.
    """
    start_keras()
    workers = join()  # before training is imported, which computes
    from show_attend_tell.training.train import make_trainer, prepare_folder

    folder = Path(settings[0]).parent
    begun = workers.is_chief and (folder / runs.CHECKPOINT).exists()
    resume = bool(workers.total([begun])[0])
    with contextlib.ExitStack() as stack:
        try:
            with workers.together():
                require_visible([settings])
                trainer, added = make_trainer(
                    stack, experiment, work, runs_folder, resume, workers
                )
                prepare_folder(folder, added, workers)
            workers.require_same(trainer.task.identity())
        except (ShowAttendTellError, OSError) as error:
            return None, one_line(error, 1000)
        try:
            return trainer.run(folder, resume, progress=False), None
        except TrainingError as error:  # on all workers
            return None, one_line(error, 1000)


def run_together(
    address: str,
    function: Callable[..., Any],
    arguments: dict[str, Any],
    folder: Path,
    count: int | None = None,
) -> Any:
    """Run a function in workers of one processor each; return the first one's value.

    Args:
        address: see :func:`cluster.pool.connected`.
        function: a function of a module. After an error all workers are started again,
            so it must continue from what it has written.
        arguments: its arguments.
        folder: a folder that every node sees, for Ray's own files; removed at the end.
        count: number of workers; by default one per processor.

    Raises:
        ClusterError: the cluster cannot be used or is too small, or workers have failed
            too many times.
    """
    for name in ("RAY_TRAIN_METRICS_ENABLED", "RAY_CHDIR_TO_TRIAL_DIR"):
        os.environ.setdefault(name, "0")
    with connected(address) as cluster:
        count = count or max(cluster.processors, 1)
        if cluster.processors < count:
            raise ClusterError(
                f"`workers` must be at most the {cluster.processors} processors of the "
                f"cluster. Received: {count}; start more nodes, or pass fewer workers"
            )
        try:
            return _fit(function, arguments, folder, count)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _fit(
    function: Callable[..., Any], arguments: dict[str, Any], folder: Path, count: int
) -> Any:
    from ray import train
    from ray.train.tensorflow import TensorflowTrainer

    logging.getLogger("ray").setLevel(logging.ERROR)
    trainer = TensorflowTrainer(
        _work,
        train_loop_config={"function": function, "arguments": arguments},
        scaling_config=train.ScalingConfig(
            num_workers=count, resources_per_worker={"CPU": 1}
        ),
        run_config=train.RunConfig(
            name="job",
            storage_path=str(folder),
            failure_config=train.FailureConfig(max_failures=_FAILURES),
        ),
    )
    try:
        return trainer.fit().return_value
    except train.TrainingFailedError as error:
        raise ClusterError(
            f"the workers have failed {_FAILURES + 1} times ({_cause(error)}); repair "
            "the cause, then continue with --resume"
        ) from None


def _cause(error: Exception) -> str:
    """Return the line of the first worker's error that names the cause."""
    failures = getattr(error, "worker_failures", {}) or {}
    texts = [str(failure) for failure in failures.values()] or [str(error)]
    lines = [line for line in texts[0].splitlines() if line.strip()]
    return one_line(lines[-1] if lines else error)


def _work(config: dict[str, Any]) -> Any:
    """Run the function in a worker."""
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # set by Ray; another Keras
    return config["function"](**config["arguments"])


def join() -> "Workers":
    """Join the workers of ``TF_CONFIG``; wait until all have started.

    Call it before TensorFlow computes anything.

    Raises:
        ClusterError: ``TF_CONFIG`` is malformed, a worker does not start in time, or
            has several devices.
    """
    import tensorflow as tf

    from show_attend_tell.training.workers import SIGNALS, Workers

    rank, addresses = read_configuration(os.environ.get("TF_CONFIG", ""))
    count = len(addresses)
    if count == 1:
        return Workers()
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        meet(rank, addresses)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        raise ClusterError(
            f"worker {rank} of {count} at {addresses[rank]}: the workers cannot join "
            f"({one_line(error)}); start every worker of TF_CONFIG within "
            f"{JOIN_SECONDS:.0f} seconds, each at a free port that the others reach"
        ) from None
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():  # TensorFlow has set its own
            signal.signal(number, handler)
    if strategy.num_replicas_in_sync != count:
        raise ClusterError(
            f"worker {rank}: must have one device. Received: {count} workers with "
            f"{strategy.num_replicas_in_sync} devices; start a worker for each GPU, "
            "and give it one by CUDA_VISIBLE_DEVICES"
        )
    return Workers(strategy, rank, count)


def read_configuration(text: str) -> tuple[int, list[str]]:
    """Return the rank of this worker and the addresses of all.

    Args:
        text: the value of ``TF_CONFIG``.

    Raises:
        ClusterError: the text is not a configuration of workers.
    """
    try:
        values = json.loads(text)
        addresses, task = values["cluster"]["worker"], values["task"]
        rank = task["index"]
        valid = (
            list(values["cluster"]) == ["worker"]
            and task["type"] == "worker"
            and all(address.rpartition(":")[2].isdecimal() for address in addresses)
            and type(rank) is int
            and 0 <= rank < len(addresses)
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise ClusterError(
            '`TF_CONFIG` must be {"cluster": {"worker": ["HOST:PORT", ...]}, "task": '
            f'{{"type": "worker", "index": K}}}}. Received: {one_line(text, 80)}; give '
            "every worker the same addresses and its own K, from 0"
        )
    return rank, addresses


def meet(rank: int, addresses: list[str], seconds: float | None = None) -> None:
    """Wait until all workers have come to the chief's address.

    Args:
        rank: number of this worker; the chief's is 0.
        addresses: ``host:port`` of each worker.
        seconds: how long to wait, by default :data:`JOIN_SECONDS`.

    Raises:
        TimeoutError: a worker is absent.
        OSError: the address cannot be used.
    """
    end = time.monotonic() + (JOIN_SECONDS if seconds is None else seconds)
    host, _, port = addresses[0].rpartition(":")
    if rank == 0:
        _receive(int(port), len(addresses), end)
        return
    while True:
        try:
            with socket.create_connection((host, int(port)), _POLL_SECONDS) as chief:
                chief.settimeout(max(end - time.monotonic(), _POLL_SECONDS))
                chief.sendall(f"{rank}\n".encode())
                if chief.recv(len(_READY)) == _READY:
                    return
        except OSError as error:
            reason = one_line(error)
        else:
            reason = "another program answers, or the chief has ended"
        if time.monotonic() > end:
            raise TimeoutError(f"no worker 0 at {addresses[0]}: {reason}")
        time.sleep(_POLL_SECONDS)


def _receive(port: int, count: int, end: float) -> None:
    """Wait for a connection of every other worker, then answer all."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("", port)))
        server.settimeout(_POLL_SECONDS)
        present: dict[str, socket.socket] = {}
        while missing := {str(k) for k in range(1, count)} - present.keys():
            if time.monotonic() > end:
                raise TimeoutError(f"worker {min(missing)} is absent")
            with contextlib.suppress(OSError):  # nobody yet, or a broken connection
                connection, _ = server.accept()
                stack.enter_context(connection)
                connection.settimeout(_POLL_SECONDS)
                present[connection.recv(20).decode(errors="replace").strip()] = (
                    connection
                )
        for connection in present.values():
            connection.sendall(_READY)
