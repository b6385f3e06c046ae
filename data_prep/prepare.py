"""Prepare the data set of an experiment, whatever its task, in one folder."""

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

from data_prep.sources import SOURCES
from data_prep.sources.preparation import Preparation, Prepared
from data_prep.unpack import Progress
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import locked


def prepare(
    experiment: Any,
    data: Path | None,
    work: Path,
    on_problem: Literal["skip", "refuse"] = "skip",
    progress: Progress | None = None,
    limit: int | None = None,
) -> Prepared:
    """Write the files that training reads: manifest and vocabulary, digits or words.

    Each file is written atomically, and preparing again resumes unpacking and
    rendering. Only one process prepares a folder at a time.

    Args:
        experiment: the settings, of any task.
        data: the user's folder; ignored by sources that draw or render.
        work: the folder of all prepared data sets, each in a folder of its name.
        on_problem: ``skip`` skips items that have problems, ``refuse`` raises an
            error: before unpacking if the problem is already known.
        progress: called after every item.
        limit: maximum number of photos of each split, in the order of the data set;
            all by default. Photos beyond it are not unpacked.

    Raises:
        DataError: the data cannot be prepared, or have problems that are refused.
        ManifestError: a set of ``data.also`` is not prepared.
        VocabularyError: no word is frequent enough.
        WordsError: the file of words cannot be read.
    """
    started = time.monotonic()
    folder = Path(work).absolute() / experiment.data.name
    preparation = Preparation(
        experiment, data, folder, on_problem == "refuse", progress, limit
    )
    taken = DataError(f"{folder}: another process is preparing it; wait for its end")
    with locked(folder / ".prepare.lock", taken):
        prepared = SOURCES[experiment.data.source](preparation)
    return dataclasses.replace(prepared, seconds=time.monotonic() - started)
