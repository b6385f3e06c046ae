"""Read the next batch of photos while the network works on the present one."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item, Content = TypeVar("Item"), TypeVar("Content")


def read_ahead(
    read: Callable[[Item], Content], items: Sequence[Item], size: int
) -> Iterator[list[Content]]:
    """Yield batches of ``read(item)``; a thread reads the next batch meanwhile.

    Items of a single batch are read without a thread.
    """
    starts = range(0, len(items), size)

    def read_batch(start: int) -> list[Content]:
        return [read(item) for item in items[start : start + size]]

    if len(starts) < 2:
        yield from map(read_batch, starts)
        return
    with ThreadPoolExecutor(1) as pool:
        present = pool.submit(read_batch, starts[0])
        for start in starts[1:]:
            following = pool.submit(read_batch, start)
            yield present.result()
            present = following
        yield present.result()
