"""Write the columns of a feature file: one value for each photo.

Texts have a fixed width. HDF5 stores texts of any width in a heap without checksum, and
a flipped bit there may make it loop forever.
"""

from collections.abc import Sequence

import h5py
import numpy as np


def fixed_width(texts: Sequence[str]) -> np.ndarray:
    """Return texts as an array of UTF-8, as wide as the longest."""
    return np.array([text.encode() for text in texts], np.bytes_)


def write_column(file: h5py.File, name: str, values: np.ndarray) -> None:
    """Write one value for each photo.

    Args:
        file: an open file.
        name: name of the new dataset.
        values: (N,) numbers, or texts of :func:`fixed_width`.
    """
    if values.dtype.kind == "S":
        values = values.astype(h5py.string_dtype("utf-8", values.dtype.itemsize))
    file.create_dataset(name, data=values, track_times=False)
