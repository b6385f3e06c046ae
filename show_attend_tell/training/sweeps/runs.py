"""Train the runs of a sweep: one experiment with several seeds and settings.

Each run equals a training of its settings alone. Runs of captions are then evaluated on
the validation split, which the settings may be chosen by, so that they can be compared.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import tensorflow as tf

from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.evaluation.evaluate import evaluate
from show_attend_tell.runtime.errors import RunError, ShowAttendTellError, one_line
from show_attend_tell.runtime.json_text import parse_json
from show_attend_tell.training.checkpoint import read_position
from show_attend_tell.training.position import Summary
from show_attend_tell.training.train import train

SPLIT = "val"  # the test photos must not choose the settings
# Errors of one run, after which the others continue.
_FAULTS = (ShowAttendTellError, OSError, MemoryError, tf.errors.ResourceExhaustedError)


@dataclass(frozen=True)
class Sweep:
    """What all runs of a sweep share.

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

    def folder(self, experiment: Experiment) -> Path:
        """Return a run's folder."""
        return self.runs / experiment.name


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    Attributes:
        experiment: its settings.
        replaced: stamp of an earlier run, which is to be replaced; None: whatever is
            present is continued.
        complete: whether nothing is left to do.
    """

    experiment: Experiment
    replaced: int | None = None
    complete: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of one run of a sweep.

    Attributes:
        experiment: its settings.
        summary: the result of the training; None if it was already finished, or failed.
        fault: the reason why the run failed, one line, or None.
    """

    experiment: Experiment
    summary: Summary | None = None
    fault: str | None = None


def plan(
    sweep: Sweep, variants: Iterable[Experiment], resume: bool, overwrite: bool
) -> list[Job]:
    """Return the jobs of a sweep, after verifying all runs that are present.

    Args:
        sweep: the places.
        variants: the settings of each run, with names of their own.
        resume: keep finished runs, continue those with a checkpoint, start the others.
        overwrite: replace earlier runs.

    Raises:
        RunError: a run is already present, has other settings, or is damaged.
    """
    jobs = []
    for experiment in variants:
        folder = sweep.folder(experiment)
        if not runs.holds_run(folder):
            jobs.append(Job(experiment))
        elif resume:
            done = _is_finished(folder, experiment)
            done = done and (not sweep.evaluates or _is_evaluated(folder))
            jobs.append(Job(experiment, complete=done))
        elif overwrite:
            jobs.append(Job(experiment, replaced=_stamp(folder)))
        else:
            raise RunError(
                f"{folder}: a run is already present; continue with --resume, replace "
                "the runs with --overwrite, or choose another folder with --runs"
            )
    return jobs


def train_in_turn(sweep: Sweep, jobs: Sequence[Job]) -> Iterator[Outcome]:
    """Train the runs one after the other; yield the outcome of each."""
    for job in jobs:
        yield Outcome(job.experiment) if job.complete else train_job(sweep, job)


def train_job(sweep: Sweep, job: Job) -> Outcome:
    """Train one run and evaluate it; return its outcome, also if it fails.

    A job that was interrupted, by the end of its process or otherwise, is continued
    from its checkpoint if it is run again.
    """
    experiment, folder = job.experiment, sweep.folder(job.experiment)
    try:
        # The process that trained the run before may not have ended yet.
        with runs.lock_run(experiment, sweep.runs, seconds=60):
            present = runs.holds_run(folder)
        replaces = present and job.replaced == _stamp(folder)
        summary = None
        if replaces or not (present and _is_finished(folder, experiment)):
            summary = sweep.train_one(
                experiment,
                sweep.work,
                sweep.runs,
                present and not replaces,
                replaces,
                progress=sweep.progress,
            )
        if sweep.evaluates and not (summary is None and _is_evaluated(folder)):
            evaluate(experiment, sweep.work, sweep.runs, SPLIT, progress=sweep.progress)
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
