"""Measure a run's model: the data that measure it, and the report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import keras

from show_attend_tell.config import runs
from show_attend_tell.config.settings import AnyExperiment, experiment_to_dict
from show_attend_tell.data.digits import Digits, read_digits
from show_attend_tell.data.words import WordData
from show_attend_tell.runtime.errors import DigitsError, WordsError
from show_attend_tell.runtime.machine import collect_provenance
from show_attend_tell.siblings.models import load_model


class Measured(NamedTuple):
    """A run's model, and what measures it."""

    experiment: AnyExperiment
    work: Path  # the folder of prepared data
    folder: Path  # the run folder
    model: keras.Model
    split: str
    data: Digits | WordData  # of the split


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
    experiment: AnyExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
    **options: object,
) -> Report:
    """Measure a run's model; write figures and ``scores.json``, with the provenance.

    Args:
        measure: returns the report of a :class:`Measured`; it draws the figures.
        experiment: the settings.
        work: the folder of prepared data.
        runs_folder: the folder of runs.
        split: the split to measure; test data by default if there are any, else
            validation data.
        **options: further arguments of `measure`.

    Raises:
        DigitsError: the prepared digits are absent, damaged, or not of the split.
        WordsError: the prepared words are absent, damaged, or not of the split.
        ModelFileError: the model is absent, damaged or of other settings.
    """
    work, run = Path(work), Path(runs_folder) / experiment.name
    split, data = open_split(experiment, work, split)
    model = load_model(run / runs.MODEL, experiment.task, experiment)
    measured = Measured(experiment, work, run, model, split, data)
    report = measure(measured, **options)
    scores = {"experiment": experiment.name, "split": split, **report.scores}
    scores |= {"settings": experiment_to_dict(experiment)} | collect_provenance()
    runs.write_json(run / f"scores{report.suffix}.json", scores)
    return report


def open_split(
    experiment: AnyExperiment, work: Path, split: str | None
) -> tuple[str, Digits | WordData]:
    """Return the name and the data of a split; see :func:`evaluate_run`."""
    if split is None:
        try:
            return "test", read_split(experiment, work, "test")
        except (DigitsError, WordsError):  # no such data, or a damaged file
            split = "val"
    return split, read_split(experiment, work, split)


def read_split(experiment: AnyExperiment, work: Path, split: str) -> Digits | WordData:
    """Return the prepared digits or words of a split.

    Raises:
        DigitsError, WordsError: see :func:`evaluate_run`.
    """
    folder = work / experiment.data.name
    if experiment.task == "read":
        return WordData.open(folder, split)
    return read_digits(folder, split, experiment.data.validation)
