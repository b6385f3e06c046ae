"""Read weights from HDF5 files that may be damaged or hostile.

h5py finds the arrays; links, external and virtual data are refused. HDF5 itself would
unpack a chunk to any size, so that chunks are unpacked here.
"""

import contextlib
import io
import itertools
import math
import zlib
from collections.abc import Iterator

import h5py
import numpy as np

from show_attend_tell.runtime.hdf5_objects import hdf5_faults, require_own_data
from show_attend_tell.runtime.untrusted import as_value_error

# numbers of HDF5's filters
_DEFLATE = 1
_SHUFFLE = 2
_TYPES = ("<f2", "<f4", "|i1")


class Hdf5Arrays:
    """The arrays of an open file; :func:`open_hdf5` opens it."""

    def __init__(self, content: bytes, file: h5py.File):
        self._content = content
        self._file = file

    def __contains__(self, path: str) -> bool:
        return path in self._file

    def shapes(self, excluded: str = "") -> dict[str, tuple[int, ...]]:
        """Return the shape of each array by its path, except in a group of the root."""
        shapes: dict[str, tuple[int, ...]] = {}

        def visit(path: str, item: h5py.Group | h5py.Dataset) -> None:
            if isinstance(item, h5py.Dataset) and path.split("/")[0] != excluded:
                shapes[path] = item.shape

        with hdf5_faults():
            self._file.visititems(visit)
        return shapes

    def read(self, path: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return the array at a path, such as ``decoder/vars/0``.

        Args:
            path: names of the groups and of the array.
            shape: the shape that it must have; nothing is allocated for another.

        Raises:
            ValueError: the array is absent, damaged, or has another shape or type.
        """
        with hdf5_faults():
            item = self._file.get(path)
        if not isinstance(item, h5py.Dataset):
            raise ValueError(f"`{path}` is missing")
        if item.shape != tuple(shape):
            raise ValueError(f"`{path}` must be {tuple(shape)}. Received: {item.shape}")
        with hdf5_faults():
            dtype = item.dtype
        if dtype.str not in _TYPES:
            raise ValueError(f"`{path}` must be float16, float32 or int8")
        if item.chunks is not None:
            return self._chunks(item)
        with hdf5_faults():
            # One block of the file, which is sliced and not read by HDF5.
            start = item.id.get_offset()
        # Compact data are in the header of the array, and have no place of their own.
        if start is None:
            raise ValueError(f"`{path}` has another layout than blocks or chunks")
        data = self._slice(start, dtype.itemsize * math.prod(shape))
        return np.frombuffer(data, dtype).reshape(shape)

    def _slice(self, start: int, size: int) -> bytes:
        if not 0 <= start <= start + size <= len(self._content):
            raise ValueError(f"it ends before byte {start + size}")
        return self._content[start : start + size]

    def _chunks(self, item: h5py.Dataset) -> np.ndarray:
        """Return an array of equal chunks, of which the last may reach beyond it."""
        filters = _filters_of(item)
        sides = item.chunks
        size = math.prod(sides) * item.dtype.itemsize
        # Rounded up: the last chunk of an axis may reach beyond the array.
        expected = math.prod(
            -(-n // side) for n, side in zip(item.shape, sides, strict=True)
        )
        with hdf5_faults():
            count = item.id.get_num_chunks()
        # HDF5 would read an absent chunk as zeros; here it would stay uninitialised
        # memory.
        if count != expected:
            raise ValueError("chunks are missing")
        # Each chunk is in the file, so that the array is in proportion to it.
        if size > 1032 * len(self._content):  # deflate's limit is 1032:1
            raise ValueError("chunks larger than the file can hold")
        array = np.empty(item.shape, item.dtype)
        infos: list[h5py.h5d.StoreInfo] = []
        with hdf5_faults():
            item.id.chunk_iter(infos.append)
        offsets = {info.chunk_offset for info in infos}
        # Otherwise a part of the array would stay uninitialised memory.
        starts = itertools.product(*map(range, itertools.repeat(0), item.shape, sides))
        if offsets != set(starts):
            raise ValueError("a chunk twice or outside")
        for info in infos:
            data = self._slice(info.byte_offset, info.size)
            # A bit of the mask is set for each filter that was skipped for this chunk.
            used = [
                f for bit, f in enumerate(filters) if not info.filter_mask >> bit & 1
            ]
            values = np.frombuffer(
                _unfiltered(data, used, size, item.dtype), item.dtype
            )
            place = tuple(
                slice(first, first + side)
                for first, side in zip(info.chunk_offset, sides, strict=True)
            )
            target = array[place]
            # HDF5 stores chunks at the edge whole; what lies beyond the array is
            # dropped.
            inside = tuple(slice(0, n) for n in target.shape)
            target[...] = values.reshape(sides)[inside]
        return array


@contextlib.contextmanager
def open_hdf5(content: bytes) -> Iterator[Hdf5Arrays]:
    """Open the content of a file.

    Raises:
        OSError, ValueError: it is no HDF5 file, an array is not in it, or it states
            more numbers than its size allows.
    """
    limit = 20_000_000 + 4 * len(content)  # 1 number a byte in the smallest files
    with hdf5_faults():
        # From memory, so that what is verified and what is read are the same bytes.
        file = h5py.File(io.BytesIO(content), "r")
    with file:
        require_own_data(file, limit)
        yield Hdf5Arrays(content, file)


def _filters_of(item: h5py.Dataset) -> list[int]:
    """Return the numbers of the filters, in the order of writing."""
    with hdf5_faults():
        plist = item.id.get_create_plist()
        numbers = [plist.get_filter(k)[0] for k in range(plist.get_nfilters())]
    if not set(numbers) <= {_DEFLATE, _SHUFFLE}:
        raise ValueError("filters other than gzip and shuffle")
    return numbers


def _unfiltered(data: bytes, filters: list[int], size: int, dtype: np.dtype) -> bytes:
    """Undo the filters of a chunk of `size` bytes."""
    for number in reversed(filters):
        if number == _DEFLATE:
            with as_value_error(zlib.error):
                # Stops at `size` bytes, however much the data would unpack to.
                data = zlib.decompressobj().decompress(data, size)
        elif len(data) == size:  # the first bytes of all numbers, then the second
            planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
            # (bytes of a number, numbers) -> (numbers, bytes of a number)
            data = np.stack(list(planes), axis=1).tobytes()
    if len(data) != size:
        raise ValueError("a chunk of another size")
    return data
