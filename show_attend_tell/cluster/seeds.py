"""Train one experiment with several seeds, each in its own run.

Each run equals a training with its seed alone. Captioners are then evaluated on the
validation split, so that the runs can be compared. The runs are trained one after the
other, or on a Ray cluster with one run for each work item; there another worker
continues the run of a killed worker or node from its checkpoint.
"""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import tensorflow as tf

from show_attend_tell.cluster.nodes import Sight, visible
from show_attend_tell.cluster.pool import WorkItem, connected
from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.splits import data_folders, open_features
from show_attend_tell.evaluation.evaluate import evaluate
from show_attend_tell.runtime.errors import RunError, ShowAttendTellError, one_line
from show_attend_tell.runtime.json_text import parse_json
from show_attend_tell.runtime.tensorflow_startup import start_keras
from show_attend_tell.training.checkpoint import read_position
from show_attend_tell.training.position import Summary
from show_attend_tell.training.train import train

SPLIT = "val"  # the test photos must not choose a run
# Errors of one run, after which the others continue.
_FAULTS = (ShowAttendTellError, OSError, MemoryError, tf.errors.ResourceExhaustedError)


@dataclass(frozen=True)
class Series:
    """What the runs of all seeds share.

    Attributes:
        work: folder of prepared data.
        runs: folder of the run folders.
        train_one: the function that trains a run.
        evaluates: whether the runs are evaluated afterwards.
        progress: whether to show a bar for each training and evaluation.
    """

    work: Path
    runs: Path
    train_one: Callable[..., Summary] = train
    evaluates: bool = True
    progress: bool = True


@dataclass(frozen=True)
class Job:
    """The run of one seed.

    Attributes:
        experiment: its settings.
        replaced: stamp of the earlier run that this one replaces; None: a run that is
            present is continued.
        complete: whether the run is trained and evaluated.
    """

    experiment: Experiment
    replaced: int | None = None
    complete: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of one run.

    Attributes:
        experiment: its settings.
        summary: the result of the training; None if it failed, or was finished before.
        fault: the reason why the run failed, one line, or None.
    """

    experiment: Experiment
    summary: Summary | None = None
    fault: str | None = None


def plan(
    series: Series, variants: Iterable[Experiment], resume: bool, overwrite: bool
) -> list[Job]:
    """Return the jobs of a series, after verifying all runs that are present.

    Args:
        series: what the runs share.
        variants: the settings of each run, from
            :func:`config.experiments.seed_variants`.
        resume: keep finished runs, continue runs with a checkpoint, start the others.
        overwrite: replace earlier runs.

    Raises:
        RunError: a run is already present, has other settings, or is damaged.
    """
    jobs = []
    for experiment in variants:
        folder = series.runs / experiment.name
        if not runs.holds_run(folder):
            jobs.append(Job(experiment))
        elif resume:
            done = _is_finished(folder, experiment)
            done = done and (not series.evaluates or _is_evaluated(folder))
            jobs.append(Job(experiment, complete=done))
        elif overwrite:
            jobs.append(Job(experiment, replaced=_stamp(folder)))
        else:
            raise RunError(
                f"{folder}: a run is already present; continue with --resume, replace "
                "the runs with --overwrite, or choose another folder with --runs"
            )
    return jobs


def train_in_turn(series: Series, jobs: Sequence[Job]) -> Iterator[Outcome]:
    """Train the runs one after the other; yield the outcome of each."""
    for job in jobs:
        yield Outcome(job.experiment) if job.complete else train_job(series, job)


def train_job(series: Series, job: Job) -> Outcome:
    """Train one run and evaluate it; return its outcome, also if it fails.

    An interrupted job continues from its checkpoint when it is called again.
    """
    experiment, folder = job.experiment, series.runs / job.experiment.name
    try:
        # The process that trained the run before may not have ended yet.
        with runs.lock_run(experiment, series.runs, seconds=60):
            present = runs.holds_run(folder)
        replaces = present and job.replaced == _stamp(folder)
        summary = None
        if replaces or not (present and _is_finished(folder, experiment)):
            summary = series.train_one(
                experiment,
                series.work,
                series.runs,
                present and not replaces,
                replaces,
                progress=series.progress,
            )
        if series.evaluates and not (summary is None and _is_evaluated(folder)):
            evaluate(
                experiment, series.work, series.runs, SPLIT, progress=series.progress
            )
    except _FAULTS as error:
        return Outcome(experiment, fault=one_line(error, 1000))
    finally:
        keras.backend.clear_session()  # graphs of this training fill the memory
    return Outcome(experiment, summary)


def _is_finished(folder: Path, experiment: Experiment) -> bool:
    """Return whether a run has done all epochs or has stopped early.

    Raises:
        RunError: there is no checkpoint, it is damaged, or the settings have changed.
    """
    runs.open_run(experiment, folder.parent, resume=True, overwrite=False)
    position = read_position(folder / runs.CHECKPOINT)
    epochs = experiment.training.epochs
    return bool(position.get("stopped")) or position.get("epoch", 0) >= epochs


def _is_evaluated(folder: Path) -> bool:
    """Return whether the last evaluation of a run was on the validation split."""
    try:
        scores = parse_json((folder / "scores.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(scores, dict) and scores.get("split") == SPLIT


def _stamp(folder: Path) -> int:
    """Return the time of the last change of a run's checkpoint, or of its model."""
    checkpoint = folder / runs.CHECKPOINT
    file = checkpoint if checkpoint.exists() else folder / runs.MODEL
    return file.stat().st_mtime_ns


def run_trainer(series: Series, folder: str) -> Callable[[Job], Outcome]:
    """Start TensorFlow in a worker process; return the function that trains a run.

    Args:
        series: what the runs share, with absolute paths.
        folder: the driver's working directory, for relative paths in the settings.
    """
    start_keras()
    if os.path.isdir(folder):
        os.chdir(folder)
    return functools.partial(train_job, series)


def train_on_cluster(
    series: Series, jobs: Sequence[Job], address: str, workers: int | None = None
) -> Iterator[Outcome]:
    """Train runs on a cluster, whose processors the workers share.

    Args:
        series: what the runs share, with absolute paths that all nodes see.
        jobs: the runs, from :func:`plan`.
        address: see :func:`cluster.pool.connected`.
        workers: runs that are trained at the same time; by default one per processor.

    Yields:
        The outcome of each run, in the order in which they finish.

    Raises:
        ClusterError: see :func:`cluster.pool.connected`; or a worker does not see the
            prepared data or the run folders.
        FeatureError: the features are absent or do not match the settings.
        RunError: another process is training one of the runs.
    """
    yield from (Outcome(job.experiment) for job in jobs if job.complete)
    jobs = [job for job in jobs if not job.complete]
    if not jobs:
        return
    items = [
        WorkItem(
            f"run {job.experiment.name}", job, tuple(_sights(series, job.experiment))
        )
        for job in jobs
    ]
    with connected(address) as cluster:
        count = min(workers or cluster.processors, len(jobs))
        done = cluster.run(
            run_trainer,
            (series, os.getcwd()),
            items,
            count,
            processors=cluster.processors_each(count),
            keep_going=True,
        )
        for item, value in done:
            lost = not isinstance(value, Outcome)
            experiment = item.payload.experiment
            yield Outcome(experiment, fault=str(value)) if lost else value


def _sights(series: Series, experiment: Experiment) -> list[Sight]:
    """Return the files that show a worker that it sees the same folders."""
    if series.evaluates:  # captions
        open_features(experiment, series.work).close()
    # Make the lock file: another machine's folder at this path is a different folder.
    with runs.lock_run(experiment, series.runs, seconds=60):
        files = [runs.lock_file(experiment, series.runs)]
    for folder in data_folders(experiment, series.work):
        files += folder.glob("manifest.jsonl")
    return [visible(file) for file in files]
