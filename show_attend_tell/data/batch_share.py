"""Divide the rows of each batch among the workers of a training."""

from typing import NamedTuple


class BatchShare(NamedTuple):
    """One of `shares` equal parts of each batch; by default the whole batch."""

    number: int = 0  # of the share, from 0
    shares: int = 1

    def rows(self, total: int) -> slice:
        """Return its rows of a batch of `total` rows, a multiple of `shares`."""
        size = total // self.shares
        return slice(self.number * size, (self.number + 1) * size)


WHOLE_BATCH = BatchShare()
