"""Read items in threads while the caller works on the items before them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Content = TypeVar("Content")


def read_ahead(
    read: Callable[[Item], Content],
    items: Iterable[Item],
    count: int = 1,
    threads: int = 1,
) -> Iterator[Content]:
    """Yield ``read(item)`` of each item in order; an error is raised in its place.

    Args:
        read: a function that several threads may call.
        items: the items.
        count: how many items are read before the caller asks for them.
        threads: number of threads.
    """
    waiting: deque[Future[Content]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(read, item))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # If the caller stops early, the end of `with` would first read what waits.
            pool.shutdown(cancel_futures=True)
