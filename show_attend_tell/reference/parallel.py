"""Compute photos, or the parts of one photo, side by side on all cores.

A product of one photo is too small for the threads of BLAS: they wait for each other in
loops, which beside another program takes many times longer than one thread. So BLAS
gets one thread, and the threads here, which sleep while they wait, take a photo or a
part of a map each.
"""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from show_attend_tell.runtime.machine import usable_cores

Result = TypeVar("Result")

CORES = usable_cores()
# Made on first use, and once: it looks through all loaded libraries.
_controller = functools.cache(ThreadpoolController)


@dataclasses.dataclass(frozen=True)
class Workers:
    """Threads that compute the parts of a photo.

    Attributes:
        count: number of threads, and so of parts.
        map: ``map`` of one thread, or of a pool of threads.
    """

    count: int
    map: Callable[..., Iterable[Any]]

    def run(self, function: Callable[[int], None], items: Iterable[int]) -> None:
        """Call a function with each item, and return when all calls have returned."""
        # The loop runs the parts of `map`, which is lazy, and raises the error of a
        # part.
        for _ in self.map(function, items):
            pass


ONE_WORKER = Workers(1, map)


class _OneBlasThread(contextlib.ContextDecorator):
    """Limits BLAS to one thread while at least one caller is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0  # callers; the limit is the whole process's
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                # A thread that has set a limit before, here or in a library, may
                # control it still.
                _free_limits()
                self._limit = _controller().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _free_limits()  # the last caller may be another thread than the first
                self._limit.restore_original_limits()
                # Restoring has made this thread the controlling one.
                _free_limits()


def _free_limits() -> None:
    """Let any thread set the number of threads of BLAS.

    Since version 3.8 threadpoolctl ignores all threads but the first that set it, for
    as long as that one lives: a server would have its first request limited alone.
    """
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


one_blas_thread = _OneBlasThread()


def each(function: Callable[..., Result], *arguments: Iterable[Any]) -> list[Result]:
    """Return the results of a function for each photo, in order."""
    photos = list(zip(*arguments, strict=True))
    with one_blas_thread:
        if len(photos) < 2:
            return [function(*photo) for photo in photos]
        with ThreadPoolExecutor(CORES) as pool:
            return list(pool.map(lambda photo: function(*photo), photos))


@contextlib.contextmanager
def all_cores() -> Iterator[Workers]:
    """Yield workers on all cores, for the parts of one photo."""
    with one_blas_thread:
        if CORES == 1:
            yield ONE_WORKER
            return
        with ThreadPoolExecutor(CORES) as pool:
            yield Workers(CORES, pool.map)
