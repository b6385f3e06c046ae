"""A desk with one clerk and a short queue: who finds it full is told when to return."""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from show_attend_tell.runtime.errors import BusyError

T = TypeVar("T")


class Desk:
    """Runs work one after the other in one thread; used from one event loop.

    Args:
        places: how many may be served or wait at the same time.
    """

    def __init__(self, places: int):
        self.places = places
        self._taken = 0
        self._pace = 1.0  # seconds for one, a moving average
        self._clerk = ThreadPoolExecutor(1, "captions")

    @property
    def taken(self) -> int:
        """How many are served or wait now."""
        return self._taken

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Wait for a turn and return what the work returns.

        Raises:
            BusyError: every place is taken.
        """
        if self._taken >= self.places:
            raise BusyError(max(1, math.ceil(self._pace * self._taken / 2)))
        self._taken += 1
        future = self._clerk.submit(self._timed, work, *arguments)
        # The place is free when the work is done, also if nobody waits for it any more.
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Send those who wait away and end the thread."""
        self._clerk.shutdown(wait=False, cancel_futures=True)

    def _leave(self) -> None:
        self._taken -= 1

    def _timed(self, work: Callable[..., T], *arguments: object) -> T:
        start = time.monotonic()
        try:
            return work(*arguments)
        finally:
            self._pace += 0.3 * (time.monotonic() - start - self._pace)
