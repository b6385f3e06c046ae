"""Train the runs of a sweep in the workers of a Ray cluster, a run at a time in each.

A run whose worker or node is killed is continued by another from its checkpoint.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from show_attend_tell.cluster.pool import connected
from show_attend_tell.cluster.worker import Task, visible
from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.splits import data_folders, open_features
from show_attend_tell.models.pretrained import NAMES
from show_attend_tell.training.sweeps.runs import Job, Outcome, Sweep, train_job

# Files of a prepared folder that a training reads.
_PREPARED = (
    "manifest.jsonl",
    "vocabulary*.json",
    "features-*.h5",
    "features-*.shards/index.h5",
    "*.npz",
)


class SweepWorker:
    """Train runs in a worker process, one after the other."""

    def __init__(self, sweep: Sweep):
        """Initialize the worker.

        Args:
            sweep: the places, as absolute paths.
        """
        self._sweep = sweep

    def run(self, job: Job) -> Outcome:
        """Train one run; see :func:`runs.train_job`."""
        return train_job(self._sweep, job)


def make_worker(sweep: Sweep, folder: str) -> SweepWorker:
    """Start TensorFlow in a worker process and return its worker.

    Args:
        sweep: the places, as absolute paths.
        folder: the driver's working directory, for relative paths in the settings.
    """
    from show_attend_tell.runtime.tensorflow_startup import start_keras

    start_keras()
    if os.path.isdir(folder):
        os.chdir(folder)
    return SweepWorker(sweep)


def train_on_cluster(
    sweep: Sweep, jobs: Sequence[Job], address: str, workers: int | None = None
) -> Iterator[Outcome]:
    """Train the runs of a sweep in the workers of a cluster.

    The processors of the cluster are shared among the workers.

    Args:
        sweep: the places, as absolute paths that all nodes see.
        jobs: the runs, from :func:`runs.plan`.
        address: see :func:`cluster.pool.connected`.
        workers: runs that are trained at the same time; by default as many as there
            are processors.

    Yields:
        The outcome of each run, in the order in which they end.

    Raises:
        ClusterError: see :func:`cluster.pool.connected`; or a node does not see the
            prepared data or the run folders, which is found before any training.
        FeatureError: the features are absent or do not match the settings.
        RunError: another process is training one of the runs.
    """
    yield from (Outcome(job.experiment) for job in jobs if job.complete)
    left = [job for job in jobs if not job.complete]
    if not left:
        return
    # The inputs of all runs are verified before the first is trained.
    inputs = [one for job in left for one in _visible_inputs(sweep, job.experiment)]
    seen = tuple(dict.fromkeys(inputs))
    with connected(address) as cluster:
        count = min(workers or cluster.processors, len(left))
        tasks = [Task(f"run {job.experiment.name}", job, seen) for job in left]
        done = cluster.run(
            make_worker,
            (sweep, os.getcwd()),
            tasks,
            count,
            processors=cluster.processors_each(count),
            keep_going=True,
        )
        for task, value in done:
            lost = not isinstance(value, Outcome)
            experiment = task.payload.experiment
            yield Outcome(experiment, fault=str(value)) if lost else value


def _visible_inputs(
    sweep: Sweep, experiment: Experiment
) -> list[tuple[str, int | None]]:
    """Return the paths that a worker must see to train a run."""
    if sweep.evaluates:  # of captions
        open_features(experiment, sweep.work).close()
    # The lock is made here: that of another folder at the same path is not this one.
    with runs.lock_run(experiment, sweep.runs, seconds=60):
        paths: list[Path] = [runs.lock_file(experiment, sweep.runs)]
    for folder in data_folders(experiment, sweep.work):
        paths += [path for name in _PREPARED for path in sorted(folder.glob(name))]
    source = getattr(experiment.training, "init_from", "")
    teachers = getattr(getattr(experiment, "distillation", None), "teachers", ())
    for model in dict.fromkeys((source, *teachers)):
        if model in ("", *NAMES):
            continue
        path = runs.find_model(model, sweep.runs)
        paths += [path] if path.is_file() else []
    return [visible(path) for path in paths]
