"""Divide the rows of each batch among the workers of a training."""

from typing import NamedTuple


class BatchShare(NamedTuple):
    """One of `count` equal shares of each batch; by default the whole batch."""

    number: int = 0  # of the share, from 0
    count: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether the share is the whole batch."""
        return self.count == 1

    def rows(self, total: int) -> slice:
        """Return the share's rows of a batch of `total` rows, a multiple of `count`."""
        size = total // self.count
        return slice(self.number * size, (self.number + 1) * size)


WHOLE_BATCH = BatchShare()
