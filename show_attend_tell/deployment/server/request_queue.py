"""Run requests one at a time; a full queue is status 503 with a retry delay."""

from collections.abc import Callable

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException

_PER_SECOND = 4  # requests, at least, by which the retry delay is estimated


class RequestQueue:
    """Runs functions in a worker thread, one after the other; for one event loop.

    Attributes:
        limit: requests that may run or wait together.
        length: requests that run or wait now.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self.length = 0
        # Waiting requests get it in the order in which they came.
        self._one = anyio.CapacityLimiter(1)

    async def run(self, function: Callable, *arguments: object):
        """Wait for the requests before this one, then return the function's result.

        Raises:
            HTTPException: the queue is full.
        """
        if self.length >= self.limit:
            seconds = str(1 + self.length // _PER_SECOND)
            raise HTTPException(
                503,
                f"busy: the queue is full; send the photo again in {seconds} seconds",
                {"Retry-After": seconds},
            )
        self.length += 1
        try:
            # A thread cannot be stopped: cancelled while it runs, a request waits for
            # its function, so that two never run together.
            return await anyio.to_thread.run_sync(
                function, *arguments, limiter=self._one
            )
        finally:
            self.length -= 1  # also if the request is cancelled while it waits
