"""Keep the features of training photos in the memory of an accelerator.

A batch of 256 photos has 51 MB of features. Where the features of all training photos
fit into half of the device's free memory, they are moved there once, and batches are
gathered there; otherwise batches are read from the files, ahead of the training.
"""

import logging
from collections.abc import Iterator, Sequence

import numpy as np
from tqdm import tqdm

from show_attend_tell.data.dataset import FeatureViews
from show_attend_tell.data.features import Features
from show_attend_tell.runtime.backend import Tensor
from show_attend_tell.training.step import free_memory, gather, table_on_device

logger = logging.getLogger(__name__)

_PART = 512  # photos that are read and moved together


def feature_views(readers: Sequence[Features], rows: np.ndarray) -> FeatureViews:
    """Return the features of training photos, on the device if there is room.

    One line of the log says which, if there is an accelerator.

    Args:
        readers: see :class:`FeatureViews`.
        rows: rows of the training photos.

    Raises:
        DataError: features cannot be read.
    """
    free = free_memory()
    if free is None:
        return FeatureViews(readers)
    _, L, D = readers[0].shape
    # Repeated photos are stored once; a row of zeros stands for padding.
    size = len(readers) * (len(np.unique(rows)) + 1) * L * D * 2  # float16
    needed = tqdm.format_sizeof(size, "B")
    room = tqdm.format_sizeof(free, "B")
    if 2 * size > free:
        logger.info(
            "features: %s, read from the files: more than half of the device's %s",
            needed,
            room,
        )
        return FeatureViews(readers)
    views = ResidentViews(readers, rows)
    logger.info("features: %s, on the device, which had %s free", needed, room)
    return views


class ResidentViews(FeatureViews):
    """Features of all training photos in one table on the device.

    Args:
        readers: see :class:`FeatureViews`.
        rows: rows of the training photos; no other is read later.
    """

    def __init__(self, readers: Sequence[Features], rows: np.ndarray):
        super().__init__(readers)
        self._rows = np.unique(rows)  # sorted
        # Of each reader N rows, and a row of zeros: (readers N + 1, L, D)
        self._zero = len(self.readers) * len(self._rows)
        self._table = table_on_device(self._parts(), self._zero)

    def _parts(self) -> Iterator[np.ndarray]:
        for reader in self.readers:
            for start in range(0, len(self._rows), _PART):
                yield reader.read(self._rows[start : start + _PART])

    def _gather(self, rows: np.ndarray, choice: np.ndarray, count: int) -> Tensor:
        places = np.full(count, self._zero, np.int32)
        positions = np.searchsorted(self._rows, rows)
        # Row n of reader r is row r N + n of the table.
        places[: len(rows)] = choice * len(self._rows) + positions
        return gather(self._table, places)
