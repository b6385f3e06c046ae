"""Read the features of a set that is a folder of HDF5 shards with one index.

``features-<network>-<layer>.shards/`` takes the place of the file
``features-<network>-<layer>.h5``. It holds

==============  ========================================================================
``000000.h5``   rows 0 to :data:`SHARD_ROWS` - 1: ``features`` (n, L, D), ``problems``
                (n,), ``checksums`` (n,), and the ``digest`` of them and of the ids
``000001.h5``   the next rows, and so on
``header.json`` the encoder and the photos, written before the first shard
``index.h5``    a feature file without ``features``: the columns of all rows and the
                attributes, written after the last shard; ``shard_rows`` counts the rows
                of a shard
==============  ========================================================================

The shards may be in an object store, see :mod:`data.shard_store`.

Shards are written atomically and in any order, by one process or by many, so that the
features are never copied to join them. Reading 64 random photos of VGG16 takes 11 ms of
processor time, as from one file, and 20 ms if a shard is opened for each.
"""

from collections import OrderedDict
from pathlib import Path

import h5py
import numpy as np

from show_attend_tell.data.shard_store import open_store
from show_attend_tell.runtime.regular_files import require_regular

SHARD_ROWS = 256  # photos: half a minute of VGG16 on one core, 5 MB
INDEX = "index.h5"
HEADER = "header.json"
# A process may open 1,024 files by default, and training reads two feature sets.
_OPEN = 256


def shards_folder(path: str | Path) -> Path:
    """Return the folder of shards that takes the place of a feature file."""
    return Path(path).with_suffix(".shards")


def shard_name(number: int) -> str:
    """Return the name of the file of a shard."""
    return f"{number:06d}.h5"


def feature_set(path: str | Path) -> Path:
    """Return a feature file's path, or its folder of shards if only that exists."""
    path = Path(path)
    folder = shards_folder(path)
    return folder if folder.is_dir() and not path.exists() else path


class ShardedFeatures:
    """The ``features`` of all shards, in place of the dataset of one file.

    Threads must not share it; :class:`data.features.FeatureReader` holds a lock.

    Attributes:
        shape: (N, L, D).
        ndim: 3.
        dtype: float16.

    Raises:
        ValueError: a shard is absent, or the first has another shape.
        FeatureError: the object store of the shards does not answer.
    """

    ndim, dtype = 3, np.dtype(np.float16)

    def __init__(self, folder: Path, rows: int, shape: tuple[int, int, int]):
        """Verify that all shards exist; each is opened when it is read.

        Args:
            folder: the folder of shards.
            rows: rows of each shard but the last.
            shape: (N, L, D) of all shards together.
        """
        if rows < 1:
            raise ValueError("`shard_rows` must be at least 1")
        self.shape, self._rows = shape, rows
        self._open: OrderedDict[int, h5py.Dataset] = OrderedDict()
        self._closed = False
        self._store = open_store(folder, folder / INDEX)
        present = self._store.sizes()
        for number in range(-(-shape[0] // rows)):
            if shard_name(number) not in present:
                raise ValueError(f"the shard {shard_name(number)} is absent")
        if shape[0]:
            self.locate(0)

    def locate(self, row: int) -> tuple[h5py.Dataset, int]:
        """Return the dataset of a row, and the row's number in it.

        Raises:
            OSError: the shard cannot be opened.
            ValueError: the shard has another shape, or the shards were closed.
        """
        if self._closed:
            raise ValueError("the shards are closed")
        number, row = divmod(row, self._rows)
        features = self._open.pop(number, None)
        if features is None:
            features = self._open_shard(number)
        self._open[number] = features  # the last is the most recently used
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)[1].file.close()
        return features, row

    def remedy(self, row: int) -> str:
        """Return what to do if the shard of a row is damaged."""
        place = self._store.place(shard_name(row // self._rows))
        return f"delete {place}; then run `features` again"

    def _open_shard(self, number: int) -> h5py.Dataset:
        count, *shape = self.shape
        rows = min(self._rows, count - number * self._rows)
        path = self._store.local(shard_name(number))
        require_regular(path)
        file = h5py.File(path, "r")
        link = file.get("features", getlink=True)
        found = file["features"] if isinstance(link, h5py.HardLink) else None
        if not (
            isinstance(found, h5py.Dataset)
            and not (found.is_virtual or found.external)
            and found.shape == (rows, *shape)
            and found.dtype == self.dtype
        ):
            file.close()
            raise ValueError(f"the shard {path.name} is of another layout")
        return found

    def close(self) -> None:
        """Close all shards; none can be read afterwards."""
        self._closed = True
        while self._open:
            self._open.popitem()[1].file.close()
