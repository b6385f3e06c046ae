"""The bar that long work shows, with its rate and the time left."""

import sys

from tqdm import tqdm

_SELDOM = 30.0  # seconds between lines where nobody watches, as in a log file


def progress_bar(
    total: int, unit: str, title: str | None = None, done: int = 0, shown: bool = True
) -> tqdm:
    """Return a bar on standard error; a context manager with ``update(n)``.

    Args:
        total: units of work in all.
        unit: what they are called.
        title: written in front.
        done: units done before, when work goes on.
        shown: False hides the bar.
    """
    watched = sys.stderr.isatty()
    return tqdm(
        desc=title,
        total=total,
        initial=done,
        unit=unit,
        disable=not shown,
        mininterval=0.1 if watched else _SELDOM,
        maxinterval=10.0 if watched else _SELDOM,
        smoothing=0.05,
        dynamic_ncols=watched,
    )
