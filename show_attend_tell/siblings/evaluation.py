"""Choose the digits that measure a model, and write the scores of a report."""

import dataclasses
from pathlib import Path

from show_attend_tell.config import runs
from show_attend_tell.config.settings import experiment_to_dict
from show_attend_tell.data.digits import Digits, holds_test_digits, read_digits
from show_attend_tell.runtime.machine import collect_provenance


def open_digits(experiment, work: str | Path, split: str | None) -> tuple[str, Digits]:
    """Return the name and the digits of the split to measure.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        split: ``train``, ``val`` or ``test``; by default test if there are such digits,
            else val.

    Raises:
        DigitsError: the prepared digits are absent, damaged, or not of the split.
    """
    folder = Path(work) / experiment.data.name
    split = split or ("test" if holds_test_digits(folder) else "val")
    return split, read_digits(folder, split, experiment.data.validation)


def write_scores(run: Path, experiment, report, suffix: str = "") -> None:
    """Write ``scores.json``: a report without its figures, settings and provenance.

    Args:
        run: the run folder.
        experiment: the settings.
        report: a dataclass with a field ``figures``.
        suffix: end of the file's name before ``.json``.
    """
    values = dataclasses.asdict(report)
    del values["figures"]
    settings = experiment_to_dict(experiment)
    scores = {**values, "settings": settings, **collect_provenance()}
    runs.write_json(run / f"scores{suffix}.json", scores)
