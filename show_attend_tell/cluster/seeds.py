"""Train one experiment with several seeds, each in its own run.

Each run equals a training with its seed alone. Captioners are then evaluated on the
validation split, so that the runs can be compared. The runs are trained one after the
other, or on a Ray cluster with one run for each work item; there another worker
continues the run of a killed worker or node from its checkpoint.
"""

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras

from show_attend_tell.cluster.pool import WorkItem, connected
from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.splits import data_folders, open_features
from show_attend_tell.evaluation.evaluate import evaluate
from show_attend_tell.evaluation.report import location_parts
from show_attend_tell.runtime.backend import is_out_of_memory
from show_attend_tell.runtime.errors import ShowAttendTellError, TrainingError, one_line
from show_attend_tell.runtime.keras_startup import start_keras
from show_attend_tell.runtime.untrusted import parse_json
from show_attend_tell.training.checkpoint import is_trained
from show_attend_tell.training.loop import Summary
from show_attend_tell.training.train import train, verify

SPLIT = "val"  # the test photos must not choose a run
# Errors of one run, after which the others continue.
_FAULTS = (ShowAttendTellError, OSError, MemoryError)


@dataclass(frozen=True)
class Series:
    """What the runs of all seeds share.

    Attributes:
        work: folder of prepared data.
        runs: folder of the run folders.
        train_one: the function that trains a run.
        verify: the function that raises an error if a run cannot be trained anew, see
            :func:`training.train.verify`; None if there is none.
        evaluates: whether the runs are evaluated afterwards.
        progress: whether to show a bar for each training and evaluation.
    """

    work: Path
    runs: Path
    train_one: Callable[..., Summary] = train
    verify: Callable[..., None] | None = verify
    evaluates: bool = True
    progress: bool = True


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


def open_runs(
    series: Series, variants: Sequence[Experiment], resume: bool, overwrite: bool
) -> None:
    """Verify the runs that are present; with `overwrite`, remove them.

    No run is removed before all can be trained anew.

    Args:
        series: what the runs share.
        variants: the settings of each run, from
            :func:`config.experiments.seed_variants`.
        resume: keep finished runs, continue runs with a checkpoint, start the others.
        overwrite: replace earlier runs.

    Raises:
        TrainingError: a run is already present, has other settings, is damaged, or is
            trained by another process.
        ConfigError, DataError, ModelFileError: with `overwrite`, a run could not be
            trained anew, see :func:`training.train.verify`.
    """
    present = [x for x in variants if runs.holds_run(series.runs / x.name)]
    for experiment in present:
        folder = series.runs / experiment.name
        if resume:
            is_trained(folder, experiment)
        elif not overwrite:
            raise TrainingError(
                f"{folder}: a run is already present; continue with --resume, replace "
                "the runs with --overwrite, or choose another folder with --runs"
            )
    if overwrite and present:
        _replace(series, present)


def _replace(series: Series, present: Sequence[Experiment]) -> None:
    """Remove earlier runs, after all are verified and locked."""
    folders = [series.runs / experiment.name for experiment in present]
    if series.verify is not None:
        # The variants differ only in their seeds.
        series.verify(present[0], series.work, series.runs, folders)
    with contextlib.ExitStack() as stack:
        for experiment in present:
            stack.enter_context(runs.lock_run(experiment, series.runs))
        for experiment in present:
            runs.open_run(experiment, series.runs, resume=False, overwrite=True)


def train_variant(series: Series, experiment: Experiment) -> Outcome:
    """Train one run and evaluate it; return its outcome, also if it fails.

    A finished run is kept; an interrupted run continues from its checkpoint.
    """
    folder = series.runs / experiment.name
    summary = None
    try:
        # The process that trained the run before may not have ended yet.
        with runs.lock_run(experiment, series.runs, seconds=60):
            # `train_one` takes this lock itself, so it is released here.
            resume = runs.holds_run(folder)
        if not (resume and is_trained(folder, experiment)):
            summary = series.train_one(
                experiment, series.work, series.runs, resume, progress=series.progress
            )
        is_new = summary is not None
        # Only captions have settings of decoding, which name the file of the scores.
        if series.evaluates and (is_new or not _is_evaluated(series, experiment)):
            evaluate(
                experiment, series.work, series.runs, SPLIT, progress=series.progress
            )
    except Exception as error:
        if not (isinstance(error, _FAULTS) or is_out_of_memory(error)):
            raise
        return Outcome(experiment, fault=one_line(error, 1000))
    finally:
        keras.backend.clear_session()  # graphs of this training fill the memory
    return Outcome(experiment, summary)


def scores_file(series: Series, experiment: Experiment) -> Path:
    """Return the file in which the evaluation of a run saves its scores."""
    parts = ("scores", *location_parts(experiment.decoding))
    return series.runs / experiment.name / f"{'-'.join(parts)}.json"


def _is_evaluated(series: Series, experiment: Experiment) -> bool:
    """Return whether the scores are of the validation split and the present model."""
    try:
        scores = parse_json(scores_file(series, experiment).read_bytes())
        digest = runs.model_digest(series.runs / experiment.name / runs.MODEL)
    except (OSError, ValueError):
        return False
    # The split too: `eval` of another split overwrites the same file.
    expected = {"split": SPLIT, "model_digest": digest}
    return isinstance(scores, dict) and expected.items() <= scores.items()


def run_trainer(series: Series) -> Callable[[Experiment], Outcome]:
    """Start TensorFlow in a worker process; return the function that trains a run."""
    start_keras()
    return functools.partial(train_variant, series)


def train_on_cluster(
    series: Series,
    variants: Iterable[Experiment],
    address: str,
    workers: int | None = None,
) -> Iterator[Outcome]:
    """Train runs on a cluster, whose processors the workers share.

    Args:
        series: what the runs share; all nodes see its folders.
        variants: the settings of the runs, after :func:`open_runs`.
        address: see :func:`cluster.pool.connected`.
        workers: runs that are trained at the same time; by default one per processor.

    Yields:
        The outcome of each run, in the order in which they finish.

    Raises:
        SetupError: see :func:`cluster.pool.connected`; or a worker does not see the
            prepared data or the run folders.
        DataError: the features are absent or do not match the settings.
        TrainingError: another process is training one of the runs.
    """
    left = []
    for experiment in variants:
        folder = series.runs / experiment.name
        trained = runs.holds_run(folder) and is_trained(folder, experiment)
        if trained and (not series.evaluates or _is_evaluated(series, experiment)):
            yield Outcome(experiment)
        else:
            left.append(experiment)
    if not left:
        return
    series.runs.mkdir(parents=True, exist_ok=True)
    # Another machine's folder at this path is a different folder, without this file.
    with tempfile.NamedTemporaryFile(dir=series.runs, prefix=".driver-") as marker:
        items = [_item(series, experiment, marker.name) for experiment in left]
        with connected(address) as cluster:
            count = min(workers or cluster.processors, len(items))
            done = cluster.run(
                run_trainer,
                (series,),
                items,
                count,
                processors=cluster.processors_each(count),
                keep_going=True,
            )
            for item, value in done:
                lost = not isinstance(value, Outcome)
                yield Outcome(item.payload, fault=str(value)) if lost else value


def _item(series: Series, experiment: Experiment, marker: str) -> WorkItem:
    """Return a run with the files that show whether a worker sees the same folders."""
    if series.evaluates:  # captions
        open_features(experiment, series.work).close()
    with runs.lock_run(experiment, series.runs, seconds=60):
        files: list[str | Path] = [marker]  # no other process trains the run
    # Sizes of the manifests show whether the worker has the same data.
    for folder in data_folders(experiment, series.work):
        files += folder.glob("manifest.jsonl")
    return WorkItem(f"run {experiment.name}", experiment, tuple(files))
