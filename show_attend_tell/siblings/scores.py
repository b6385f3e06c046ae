"""Choose the digits to measure a model on, and write its scores."""

import dataclasses
from pathlib import Path

from show_attend_tell.config import runs
from show_attend_tell.config.settings import experiment_to_dict
from show_attend_tell.data.digits import holds_test_digits
from show_attend_tell.runtime.provenance import collect_provenance


def chosen_split(prepared: Path, split: str | None) -> str:
    """Return the split to measure: by default test if there are such digits, else val.

    Args:
        prepared: the prepared folder.
        split: ``val`` or ``test``, or None.

    Raises:
        DigitsError: the prepared digits are absent or damaged.
    """
    return split or ("test" if holds_test_digits(prepared) else "val")


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
