"""Show a progress bar for long work, with its rate and the time left."""

import sys

from tqdm import tqdm

_LOG_INTERVAL = 30.0  # seconds between lines where no terminal shows them


def progress_bar(
    total: int,
    unit: str,
    title: str | None = None,
    *,
    done: int = 0,
    shown: bool = True,
    scaled: bool = False,
) -> tqdm:
    """Return a bar on standard error; a context manager with ``update(n)``.

    Args:
        total: total number of units.
        unit: name of a unit.
        title: text before the bar.
        done: units that an interrupted run has done.
        shown: whether the bar is shown.
        scaled: whether numbers have the prefixes k, M and G.
    """
    terminal = sys.stderr.isatty()
    return tqdm(
        desc=title,
        total=total,
        initial=done,
        unit=unit,
        unit_scale=scaled,
        disable=not shown,
        mininterval=0.1 if terminal else _LOG_INTERVAL,
        maxinterval=10.0 if terminal else _LOG_INTERVAL,
        dynamic_ncols=terminal,
    )
