"""Prepare the data set of an experiment in one folder.

A further source is a function ``read_<name>(data)``, such as
:func:`data_prep.sources.published.read_flickr8k`, in :data:`SOURCES`,
``DataSettings.source`` and ``CORE_NAMES`` of :mod:`runtime.plugins`; the recipe "Add a
data set" in ``CONTRIBUTING.md`` has the steps. JSON like Karpathy's needs none of it.

The data of plug-ins are prepared by functions of their own, which also take a
:class:`Preparation`; see :mod:`runtime.plugins`.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from data_prep.preparation import Preparation, Prepared
from data_prep.sources.captions import prepare_photos, prepare_scenes
from data_prep.sources.everyday import prepare_everyday
from data_prep.sources.folder import read_folder
from data_prep.sources.published import (
    read_coco,
    read_flickr8k,
    read_flickr30k,
    read_karpathy,
)
from show_attend_tell.runtime import plugins
from show_attend_tell.runtime.errors import DataError, quote
from show_attend_tell.runtime.files import locked, remove_empty

# Keyed by `data.source` of an experiment.
SOURCES: dict[str, Callable[[Preparation], Prepared]] = {
    "flickr8k": partial(prepare_photos, read_flickr8k),
    "flickr30k": partial(prepare_photos, read_flickr30k),
    "coco": partial(prepare_photos, read_coco),
    "karpathy": partial(prepare_photos, read_karpathy),
    "folder": partial(prepare_photos, read_folder),
    "everyday": prepare_everyday,
    "scenes": prepare_scenes,
}


def prepare(
    experiment: Any,
    data: Path | None,
    work: Path,
    on_problem: Literal["skip", "refuse"] = "skip",
    progress: bool = False,
    limit: int | None = None,
) -> Prepared:
    """Write the files that training reads, such as manifest and vocabulary.

    Each file is written atomically, and preparing again resumes unpacking. Only one
    process prepares a folder at a time.

    Args:
        experiment: the settings, of any task.
        data: the user's folder; ignored by sources that draw.
        work: the folder of all prepared data sets, each in a folder of its name.
        on_problem: ``skip`` skips items that have problems, ``refuse`` raises an
            error: before unpacking if the problem is already known.
        progress: whether to show progress bars on standard error.
        limit: maximum number of photos of each split, in the order of the data set;
            all by default. Photos beyond it are not unpacked.

    Raises:
        DataError: the data cannot be prepared, or have problems that are refused; or a
            set of ``data.also`` is not prepared; or no word is frequent enough; or
            nothing prepares the source.
    """
    started = time.monotonic()
    folder = Path(work).absolute() / experiment.data.name
    preparation = Preparation(
        experiment, data, folder, on_problem == "refuse", progress, limit
    )
    # Noted before the lock file makes them: a failure removes no folder of the user.
    made = [path for path in (folder, folder.parent) if not path.exists()]
    taken = DataError(f"{folder}: another process is preparing it; wait for its end")
    try:
        with locked(folder / ".prepare.lock", taken):
            prepared = _prepare_source(experiment.data.source)(preparation)
    except BaseException:
        remove_empty(*made)
        raise
    return dataclasses.replace(prepared, seconds=time.monotonic() - started)


def _prepare_source(source: str) -> Callable[[Preparation], Prepared]:
    """Return the function that prepares the data of a source."""
    known = {**SOURCES, **plugins.sources()}
    if source not in known:  # which the settings of a plug-in may let pass
        raise DataError(
            f"data.source must be {' or '.join(map(repr, known))}. Received: "
            f"{quote(source)}; correct it"
        )
    return known[source]
