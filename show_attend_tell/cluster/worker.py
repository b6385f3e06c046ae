"""What runs in a worker process of a cluster: tasks, and the checks before them."""

import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from show_attend_tell import __version__
from show_attend_tell.runtime.errors import ClusterError, ShowAttendTellError, one_line


@dataclass(frozen=True)
class Task:
    """A task of a worker.

    Attributes:
        name: name of the task in messages.
        payload: argument of the worker's ``run``.
        visible: paths that the worker must see as the driver does, to their size; None
            for a folder.
    """

    name: str
    payload: Any
    visible: tuple[tuple[str, int | None], ...] = ()


def visible(path: str | Path) -> tuple[str, int | None]:
    """Return an element of :attr:`Task.visible` for an existing path."""
    path = os.path.abspath(path)
    return path, None if os.path.isdir(path) else os.path.getsize(path)


class Worker:
    """The actor: builds the object of ``make`` once and runs its tasks.

    Its methods return a value and None, or None and the line of an error.
    """

    def __init__(self, make: Callable[[], Any], processors: int):
        for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
            os.environ[name] = str(processors)
        self._make = make
        self._host = socket.gethostname()

    def prepare(self) -> tuple[None, str | None]:
        """Build the object of ``make``."""

        def build() -> None:
            self._object = self._make()

        return self._guarded(build)

    def run(self, task: Task) -> tuple[Any, str | None]:
        """Run a task after verifying that its paths are visible."""

        def run() -> Any:
            for path, size in task.visible:
                require_visible(path, size)
            return self._object.run(task.payload)

        return self._guarded(run)

    def _guarded(self, call: Callable[[], Any]) -> tuple[Any, str | None]:
        try:
            return call(), None
        except (ShowAttendTellError, OSError) as error:
            return None, f"worker on {self._host}: {one_line(error, 1000)}"


def build_verified(make: Callable[[], Any], version: str) -> Any:
    """Return the object of ``make``; verify the version, as nodes may join later."""
    if version != __version__:
        raise ClusterError(
            f"must have version {version} of this package. Received: {__version__}; "
            "install the same version on every node"
        )
    return make()


def invisible(seen: Iterable[tuple[str, int | None]]) -> str | None:
    """Return the reason why a path is not visible in this process, or None."""
    try:
        for path, size in seen:
            require_visible(path, size)
    except ClusterError as error:
        return str(error)
    return None


def require_visible(path: str, size: int | None) -> None:
    """Raise a ClusterError unless a path of :attr:`Task.visible` is visible here."""
    remedy = "use a folder that every node mounts at the same path"
    try:
        found = visible(path)[1]
    except OSError as error:
        raise ClusterError(
            f"{path}: not visible here ({error.strerror}); {remedy}"
        ) from None
    if found != size:
        raise ClusterError(
            f"{path}: not the file that the driver sees ({found} bytes instead of "
            f"{size}); {remedy}"
        )
