"""Read ``.npz`` files that may be damaged or hostile, without pickle.

A file holds arrays and ``about``, a JSON object with the key ``format``. Matrices may
have 8 bits per number, and beside them the scales of their columns.
"""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from show_attend_tell.runtime.json_text import parse_json
from show_attend_tell.runtime.regular_files import require_regular

SCALE = "_scale"  # ending of the name of a matrix' scales
_LARGEST = 127  # of the symmetric range of int8
# Errors of NumPy and zipfile for files that are damaged or of another layout.
DAMAGED = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError),
    *(EOFError, MemoryError, SyntaxError, ArithmeticError, struct.error),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile),
)


def read_arrays(
    path: Path, names: Iterable[str], form: int, most_bytes: int
) -> tuple[dict[str, np.ndarray], dict]:
    """Return the named arrays of a file, and ``about``.

    Args:
        path: the file.
        names: names of the arrays.
        form: the required ``format``.
        most_bytes: maximum size of the unpacked file.

    Raises:
        DAMAGED: the file cannot be read, or has another format.
    """
    require_regular(path)
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > most_bytes:
        raise ValueError(f"{size} bytes unpacked, more than {most_bytes}")
    with np.load(path, allow_pickle=False) as file:
        about = parse_json(str(file["about"]))
        arrays = {name: file[name] for name in names}
    if not isinstance(about, dict) or about.get("format") != form:
        raise ValueError(f"`format` must be {form}")
    return arrays, about


def quantise(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round a kernel or matrix to 8 bits per weight with one scale per output channel.

    Args:
        kernel: (..., outputs) float32.

    Returns:
        q (..., outputs) int8 and the scales (outputs,) float32.
    """
    rest = tuple(range(kernel.ndim - 1))
    scale = np.abs(kernel).max(axis=rest) / np.float32(_LARGEST)  # -> (outputs,)
    scale = np.where(scale > 0, scale, np.float32(1))  # of channels of zeros
    q = np.clip(np.rint(kernel / scale), -_LARGEST, _LARGEST)
    return q.astype(np.int8), scale.astype(np.float32)


def dequantise(q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the float32 kernel of :func:`quantise`'s values."""
    return q.astype(np.float32) * scale
