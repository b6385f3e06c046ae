"""Train a captioner in several workers of a Ray cluster.

Ray Train starts the workers together and sets ``TF_CONFIG`` in each. If a worker ends,
Ray Train stops the others and starts all again, up to :data:`_FAILURES` times; they
continue from the last checkpoint.
"""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from show_attend_tell.cluster.pool import connected
from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.splits import load_splits, open_features
from show_attend_tell.runtime.errors import (
    SetupError,
    ShowAttendTellError,
    TrainingError,
    one_line,
)
from show_attend_tell.runtime.keras_startup import start_keras

if TYPE_CHECKING:
    from show_attend_tell.training.loop import Summary

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
) -> "Summary":
    """Train an experiment on several workers of a Ray cluster.

    Args:
        experiment: the settings.
        work: every node sees it.
        runs_folder: every node sees it.
        resume: continue from the run's checkpoint.
        overwrite: replace an earlier run.
        cluster: see :func:`cluster.pool.connected`.
        count: number of workers; by default one per processor.

    Raises:
        SetupError: the cluster cannot be used, or a worker differs or has failed.
        TrainingError, DataError: see :func:`training.train.train`.
    """
    with open_features(experiment, work) as reader:  # before a run is replaced
        load_splits(experiment, work, ("train", "val"), reader)
    with runs.lock_run(experiment, runs_folder):
        folder = runs.open_run(experiment, runs_folder, resume, overwrite)
        arguments = {
            "experiment": experiment,
            "work": os.path.abspath(work),
            "runs_folder": os.path.abspath(runs_folder),
        }
        ray_folder = folder.absolute().with_name(f"{_RAY}-{folder.name}")
        summary, fault = run_together(
            cluster, train_as_worker, arguments, ray_folder, count
        )
    if fault is not None:
        raise TrainingError(fault)
    return summary


def train_as_worker(
    experiment: Experiment, work: str, runs_folder: str
) -> tuple["Summary | None", str | None]:
    """Train in one of the workers, from the run's checkpoint if there is one.

    Returns:
        The result and None, or None and the line of an error that would occur again.

    Raises:
        SetupError: another worker has ended, so that all must start again.
    """
    start_keras()
    from show_attend_tell.training.workers import join

    workers = join()  # before training is imported, which computes
    from show_attend_tell.training.train import train

    checkpoint = Path(runs_folder, experiment.name, runs.CHECKPOINT)
    begun = workers.is_chief and checkpoint.exists()
    resume = bool(workers.total([float(begun)])[0])
    try:
        summary = train(
            experiment,
            work,
            runs_folder,
            resume,
            progress=False,
            workers=workers,
            is_open=True,
        )
        return summary, None
    except (ShowAttendTellError, OSError) as error:
        if workers.failed_together:
            return None, one_line(error, 1000)
        raise  # the other workers wait for this one, until Ray ends them


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
        SetupError: the cluster cannot be used or is too small, or workers have failed
            too many times.
    """
    for name in ("RAY_TRAIN_METRICS_ENABLED", "RAY_CHDIR_TO_TRIAL_DIR"):
        os.environ.setdefault(name, "0")
    with connected(address) as cluster:
        count = count or max(cluster.processors, 1)
        if cluster.processors < count:
            raise SetupError(
                f"`workers` must be at most the {cluster.processors} processors of the "
                f"cluster. Received: {count}; start more nodes, or pass fewer workers"
            )
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
            result: Any = trainer.fit()  # Ray types the result of its older trainers
            return result.return_value
        except train.TrainingFailedError as error:
            raise SetupError(
                f"the workers have failed {_FAILURES + 1} times ({_cause(error)}); "
                "repair the cause, then continue with --resume"
            ) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _cause(error: Exception) -> str:
    """Return the line of the first worker's error that names the cause."""
    failures = getattr(error, "worker_failures", {}) or {}
    text = str(next(iter(failures.values()), error))
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1] if lines else error)


def _work(config: dict[str, Any]) -> Any:
    """Run the function in a worker."""
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # set by Ray; another Keras
    return config["function"](**config["arguments"])
