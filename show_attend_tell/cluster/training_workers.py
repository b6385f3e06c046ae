"""Run one function in several workers of a Ray cluster, joined for TensorFlow.

Ray Train starts the workers together and sets TF_CONFIG in each. If one ends, the
others are stopped and all are started again, up to :data:`_FAILURES` times; the
function must continue from what it has written.
"""

import importlib
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from show_attend_tell.cluster.pool import connected
from show_attend_tell.runtime.errors import ClusterError, one_line

_FAILURES = 5  # restarts of a training


@dataclass(frozen=True)
class Job:
    """A function of a module, by name: only the workers import its libraries.

    Attributes:
        function: ``module:name``; it returns a value, or raises an error, after which
            all workers are started again.
        arguments: its arguments.
        folder: a folder that every node sees, for Ray's own files; removed at the end.
    """

    function: str
    arguments: dict[str, Any]
    folder: Path


def run_together(address: str, job: Job, count: int | None = None) -> Any:
    """Run a job in workers of one processor each; return the first one's value.

    Args:
        address: see :func:`cluster.pool.connected`.
        job: the job.
        count: number of workers; by default one for each processor.

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
            return _fit(job, count)
        finally:
            shutil.rmtree(job.folder, ignore_errors=True)


def _fit(job: Job, count: int) -> Any:
    from ray import train
    from ray.train.tensorflow import TensorflowTrainer

    logging.getLogger("ray").setLevel(logging.ERROR)
    trainer = TensorflowTrainer(
        _work,
        train_loop_config={"job": job},
        scaling_config=train.ScalingConfig(
            num_workers=count, resources_per_worker={"CPU": 1}
        ),
        run_config=train.RunConfig(
            name="job",
            storage_path=str(job.folder),
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
    """Run the job in a worker."""
    job = config["job"]
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # set by Ray; another Keras
    module, _, name = job.function.partition(":")
    return getattr(importlib.import_module(module), name)(**job.arguments)
