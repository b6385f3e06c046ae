"""Read ``.npy`` and ``.npz`` files, which may be damaged."""

import contextlib
import tokenize
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from show_attend_tell.runtime.untrusted import ZIP_FAULTS, as_value_error

# What NumPy raises for damaged files, besides an OSError or a ValueError. It evaluates
# the header of an array as Python, and allocates what the header states.
_FAULTS = (
    *ZIP_FAULTS,
    SyntaxError,
    tokenize.TokenError,
    TypeError,
    IndexError,
    MemoryError,
    OverflowError,
)


def map_array(path: Path) -> np.ndarray:
    """Return the array of a ``.npy`` file, mapped to memory.

    Raises:
        OSError, ValueError: the file is absent or damaged, or holds several arrays.
    """
    with as_value_error(*_FAULTS):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    # np.load looks at the content: a .npz file is opened under any name.
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError("it must hold one array")
    return array


class Archive:
    """An open ``.npz`` file; :func:`open_archive` opens it.

    Attributes:
        names: the names of the arrays.
    """

    def __init__(self, opened: np.lib.npyio.NpzFile):
        self._opened = opened
        self.names = frozenset(opened.files)

    def read(self, name: str) -> np.ndarray:
        """Return an array; raise a ValueError if it is absent or damaged."""
        if name not in self.names:
            raise ValueError(f"`{name}` is missing")
        with as_value_error(*_FAULTS):
            return self._opened[name]


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a ``.npz`` file.

    Raises:
        OSError, ValueError: the file is absent or damaged, or no archive.
    """
    with path.open("rb") as file:
        with as_value_error(*_FAULTS):
            opened = np.load(file, allow_pickle=False)
        # np.load looks at the content: a .npy file is read under any name.
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise ValueError("it must be an archive of arrays")
        with opened:
            yield Archive(opened)
