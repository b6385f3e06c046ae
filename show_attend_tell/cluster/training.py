"""Train a captioner in the workers of a Ray cluster."""

import contextlib
import os
from pathlib import Path

from show_attend_tell.cluster.training_workers import Job, run_together
from show_attend_tell.cluster.worker import require_visible, visible
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

_RAY = ".ray"  # begins the name of the folder of Ray's own files


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

    A worker that ends stops the others; then all continue from the last checkpoint.

    Args:
        experiment: the settings.
        work: folder of prepared data, which every node sees.
        runs_folder: folder of the run folder, which every node sees.
        resume: continue from the run's checkpoint.
        overwrite: replace an earlier run of the same name.
        cluster: see :func:`cluster.pool.connected`.
        count: number of workers; by default one for each processor.

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
        job = Job(
            f"{__name__}:train_as_worker",
            arguments,
            folder.absolute().with_name(f"{_RAY}-{folder.name}"),
        )
        summary, fault = run_together(cluster, job, count)
    if fault is not None:
        raise ClusterError(fault)
    return summary


def train_as_worker(
    experiment: Experiment, work: str, runs_folder: str, settings: tuple[str, int]
) -> tuple[Summary | None, str | None]:
    """Train in one of the workers, from the run's checkpoint if there is one.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder.
        settings: path and size of the run's settings, which the driver has written.

    Returns:
        The result, or the line of an error that would occur again.

    Raises:
        ClusterError: another worker has ended, so that all must start again.
    """
    start_keras()
    from show_attend_tell.training.workers.joining import join

    workers = join()
    from show_attend_tell.training.train import make_trainer, prepare_folder

    folder = Path(settings[0]).parent
    begun = workers.is_chief and (folder / runs.CHECKPOINT).exists()
    resume = bool(workers.total([begun])[0])
    with contextlib.ExitStack() as stack:
        try:
            with workers.together():
                require_visible(*settings)
                given = (experiment, work, runs_folder, resume, workers)
                trainer, added = make_trainer(stack, *given)
                prepare_folder(folder, added, workers)
            workers.require_same(trainer.task.identity())
        except (ShowAttendTellError, OSError) as error:
            return None, one_line(error, 1000)
        try:
            return trainer.run(folder, resume, progress=False), None
        except TrainingError as error:  # on all workers
            return None, one_line(error, 1000)
