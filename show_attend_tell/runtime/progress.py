"""Show a progress bar for long work, with its rate and the time left."""

import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from tqdm import tqdm

_LOG_INTERVAL = 30.0  # seconds between lines where no terminal shows them
_STARTING = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<starting{postfix}]"


if TYPE_CHECKING:  # a class of tqdm is generic for type checkers only
    Bar = tqdm[NoReturn]  # it iterates over nothing
else:
    Bar = tqdm


class ProgressBar(Bar):
    """A tqdm bar whose rate and time left ignore pauses and compilation.

    The first update usually compiles a graph; until then the bar shows "starting".
    """

    def update(self, n: float | None = 1, compiled: bool = False) -> bool | None:
        """Advance by `n` units, whose time does not count if a graph was compiled."""
        if not self.disable and (compiled or self.n == self.initial):
            # tqdm's rate is the units over the time since the last line. Both begin
            # anew with this update, whose units do not count either.
            self.exclude_pause()
            self.last_print_n += n or 0
        return super().update(n)

    def exclude_pause(self) -> None:
        """Ignore the time since the last line, such as a validation."""
        if not self.disable:
            self.last_print_t = time.time()
            self.last_print_n = self.n  # the units of that time do not count either

    @property
    def format_dict(self) -> dict[str, Any]:
        """Values that the bar shows, see tqdm."""
        values = super().format_dict
        if self.disable or self.n > self.initial:
            return dict(values)
        return {**values, "bar_format": _STARTING}


def has_terminal() -> bool:
    """Return whether standard error is a terminal.

    A program without a console has no standard error at all, such as one that pythonw
    runs on Windows.
    """
    return sys.stderr is not None and sys.stderr.isatty()


def progress_bar(
    total: int,
    unit: str,
    title: str | None = None,
    *,
    done: int = 0,
    shown: bool = True,
    scaled: bool = False,
) -> ProgressBar:
    """Return a bar on standard error; a context manager with ``update(n)``.

    Args:
        total: total number of units.
        unit: name of a unit.
        title: text before the bar.
        done: units that an interrupted run has done.
        shown: whether the bar is shown, if there is a standard error.
        scaled: whether numbers have the prefixes k, M and G.
    """
    terminal = has_terminal()
    return ProgressBar(
        desc=title,
        total=total,
        initial=done,
        unit=unit,
        unit_scale=scaled,
        disable=not shown or sys.stderr is None,
        mininterval=0.1 if terminal else _LOG_INTERVAL,
        # tqdm's monitor thread draws a line after this time, even in a log file.
        maxinterval=10.0 if terminal else _LOG_INTERVAL,
        dynamic_ncols=terminal,
    )
