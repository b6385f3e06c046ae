"""Measure a run's model: the data that measure it, and the report.

``evaluate`` of each model takes the experiment, the folder of prepared data, the folder
of runs and the split. Without a split it measures test data if there are any, else
validation data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from show_attend_tell.config import runs
from show_attend_tell.config.settings import experiment_to_dict
from show_attend_tell.data.digits import Digits, read_digits
from show_attend_tell.runtime.errors import DigitsError, WordsError
from show_attend_tell.runtime.machine import collect_provenance


@dataclass(frozen=True)
class Report:
    """The scores of a model, and the files of its figures.

    Attributes:
        scores: the values of ``scores.json`` by name.
        text: the scores as lines to print.
        figures: the files.
    """

    scores: dict
    text: Sequence[str]
    figures: Sequence[Path]

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        return [*self.text, *map(str, self.figures)]

    def write(self, run: Path, experiment, suffix: str = "") -> None:
        """Write ``scores.json``: the scores, the settings and the provenance.

        Args:
            run: the run folder.
            experiment: the settings.
            suffix: end of the file's name before ``.json``.
        """
        settings = {"settings": experiment_to_dict(experiment)}
        scores = self.scores | settings | collect_provenance()
        runs.write_json(run / f"scores{suffix}.json", scores)


def open_digits(experiment, work: str | Path, split: str | None) -> tuple[str, Digits]:
    """Return the name and the digits of the split to measure.

    Raises:
        DigitsError: the prepared digits are absent, damaged, or not of the split.
    """
    folder, count = Path(work) / experiment.data.name, experiment.data.validation
    return open_split(lambda name: read_digits(folder, name, count), split)


def open_split(read: Callable[[str], Any], split: str | None) -> tuple[str, Any]:
    """Return the name and the data of a split; by default test data if there are any.

    ``read`` returns the data of a split.
    """
    if split is None:
        try:
            return "test", read("test")
        except (DigitsError, WordsError):  # no such data, or a damaged file
            split = "val"
    return split, read(split)
