"""Arrays of HDF5 files of version 0.3, whose chunks may be damaged."""

import io
import struct

import h5py
import numpy as np
import pytest

from show_attend_tell.conversion.hdf5_arrays import open_hdf5

VALUES = np.arange(8, dtype=np.float32)


def chunked_file() -> bytes:
    """Return the content of a file with the array ``x`` in two chunks."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(4,))
    return buffer.getvalue()


def key(first: int) -> bytes:
    """Return the key of a chunk: its bytes, its mask, and its offset in elements."""
    return struct.pack("<IIQQ", 16, 0, first, 0)


def test_chunks_are_joined():
    with open_hdf5(chunked_file()) as arrays:
        np.testing.assert_array_equal(arrays.read("x", (8,)), VALUES)


@pytest.mark.parametrize("first", [12, 0])
def test_a_chunk_twice_or_outside_is_refused(first):
    content = chunked_file()
    assert content.count(key(4)) == 1
    forged = content.replace(key(4), key(first))
    with open_hdf5(forged) as arrays, pytest.raises(ValueError, match="a chunk twice"):
        arrays.read("x", (8,))
