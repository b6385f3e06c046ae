"""Measure a run's model: the data that measure it, and the report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import keras

from show_attend_tell.config import runs
from show_attend_tell.config.settings import AnyExperiment, experiment_to_dict
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.machine import collect_provenance
from show_attend_tell.siblings.common.models import TaskModels

# Reads the prepared data of a split: experiment, work folder, name of the split.
ReadSplit = Callable[[AnyExperiment, Path, str], Any]


Settings = TypeVar("Settings", bound=AnyExperiment)


class Measured(NamedTuple, Generic[Settings]):
    """A run's model, and what measures it."""

    experiment: Settings
    work: Path  # the folder of prepared data
    folder: Path  # the run folder
    model: keras.Model
    split: str
    data: Any  # of the split


class Report(NamedTuple):
    """The scores of a model, and the files of its figures."""

    scores: dict  # the values of ``scores.json`` by name
    text: Sequence[str]  # the scores as lines to print
    figures: Sequence[Path]
    suffix: str = ""  # end of the name ``scores``

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        return [*self.text, *map(str, self.figures)]


def evaluate_run(
    measure: Callable[..., Report],
    models: TaskModels,
    read_split: ReadSplit,
    experiment: AnyExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
    **options: object,
) -> Report:
    """Measure a run's model; write figures and ``scores.json``, with the provenance.

    Args:
        measure: returns the report of a :class:`Measured`; it draws the figures.
        models: the models of the task.
        read_split: reads the prepared data.
        experiment: the settings.
        work: the folder of prepared data.
        runs_folder: the folder of runs.
        split: the split to measure; test data by default if there are any, else
            validation data.
        **options: further arguments of `measure`.

    Raises:
        DataError: the prepared data are absent, damaged, or not of the split.
        ModelFileError: the model is absent, damaged or of other settings.
    """
    work = Path(work)
    run = Path(runs_folder) / experiment.name
    split, data = open_split(read_split, experiment, work, split)
    model = models.load(run / runs.MODEL, experiment)
    measured = Measured(experiment, work, run, model, split, data)
    report = measure(measured, **options)
    scores = {"experiment": experiment.name, "split": split, **report.scores}
    scores |= {"settings": experiment_to_dict(experiment)} | collect_provenance()
    runs.write_json(run / f"scores{report.suffix}.json", scores)
    return report


def open_split(
    read_split: ReadSplit, experiment: AnyExperiment, work: Path, split: str | None
) -> tuple[str, Any]:
    """Return the name and the data of a split; see :func:`evaluate_run`."""
    if split is None:
        try:
            return "test", read_split(experiment, work, "test")
        except DataError:  # no such data, or a damaged file
            split = "val"
    return split, read_split(experiment, work, split)
