"""Run requests one at a time; a full queue raises BusyError with a retry delay."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from show_attend_tell.runtime.errors import BusyError

T = TypeVar("T")

_SMOOTHING = 0.3  # weight of the newest duration in the moving average


class RequestQueue:
    """Runs functions in a worker thread, one after the other; for one event loop.

    Attributes:
        limit: requests that may run or wait together.
        length: requests that run or wait now.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self.length = 0
        self._seconds = 1.0  # moving average of a function's duration
        self._one = anyio.CapacityLimiter(1)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Wait for the requests before this one, then return the function's result.

        Raises:
            BusyError: the queue is full.
        """
        if self.length >= self.limit:
            raise BusyError(max(1, math.ceil(self._seconds * self.length / 2)))
        self.length += 1
        try:
            return await anyio.to_thread.run_sync(
                self._timed, function, *arguments, limiter=self._one
            )
        finally:
            self.length -= 1  # also if the request is cancelled while it waits

    def _timed(self, function: Callable[..., T], *arguments: object) -> T:
        start = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self._seconds += _SMOOTHING * (time.monotonic() - start - self._seconds)
