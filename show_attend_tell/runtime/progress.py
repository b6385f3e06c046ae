"""Show a progress bar for long work, with its rate and the time left."""

import sys
import time
from collections import deque
from collections.abc import Callable

from tqdm import tqdm

_LOG_INTERVAL = 30.0  # seconds between lines where no terminal shows them
_RECENT = 100  # updates whose rate is shown
_COMPILING = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<compiling{postfix}]"


class ProgressBar(tqdm):
    """A tqdm bar that computes rate and time left from recent updates.

    The rate ignores the time of the first update, which usually compiles a graph, and
    of updates with ``compiling=True``. Until another update the bar shows "compiling"
    in place of the time left.

    Args:
        clock: returns seconds.
        options: arguments of tqdm.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, **options):
        self._clock, self._since = clock, None
        self._recent = deque(maxlen=_RECENT)  # (units, seconds)
        self._rate = 0.0  # units per second, 0 while unknown
        super().__init__(**options)

    def update(self, n: int = 1, compiling: bool = False) -> bool | None:
        """Advance by `n` units; with `compiling`, ignore the time that this took."""
        now = self._clock()
        if self._since is not None and not compiling:
            self._recent.append((n, now - self._since))
            # Summed here, as tqdm's monitor reads the rate from another thread.
            units, seconds = map(sum, zip(*self._recent, strict=True))
            self._rate = units / seconds if seconds else 0.0
        self._since = now
        return super().update(n)

    def exclude_pause(self) -> None:
        """Ignore the time since the last update, such as a validation."""
        if self._since is not None:
            self._since = self._clock()

    @property
    def format_dict(self) -> dict:
        """Values that the bar shows, see tqdm."""
        values = super().format_dict
        if self._rate:
            return {**values, "rate": self._rate}
        if self.n == self.total:
            return {**values, "rate": None}  # tqdm's average of all updates
        return {**values, "rate": 0.0, "bar_format": _COMPILING}


def progress_bar(
    total: int,
    unit: str,
    title: str | None = None,
    *,
    done: int = 0,
    shown: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> ProgressBar:
    """Return a bar on standard error; a context manager with ``update(n)``.

    Args:
        total: total number of units.
        unit: name of a unit.
        title: text before the bar.
        done: units that an interrupted run has done.
        shown: whether the bar is shown.
        clock: returns seconds.
    """
    terminal = sys.stderr.isatty()
    return ProgressBar(
        clock,
        desc=title,
        total=total,
        initial=done,
        unit=unit,
        disable=not shown,
        mininterval=0.1 if terminal else _LOG_INTERVAL,
        maxinterval=10.0 if terminal else _LOG_INTERVAL,
        dynamic_ncols=terminal,
    )
