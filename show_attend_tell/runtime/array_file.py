"""Read ``.npz`` files that may be damaged or hostile, without pickle.

A file holds arrays and ``about``, a JSON object with the key ``format``. Matrices may
have 8 bits per number, and beside them the scales of their columns.
"""

import io
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from show_attend_tell.runtime.archives import open_archive, read_member
from show_attend_tell.runtime.json_text import parse_json

SCALE = "_scale"  # ending of the name of a matrix' scales
_LARGEST = 127  # of the symmetric range of int8
# Errors of NumPy and zipfile for files that are damaged or of another layout.
DAMAGED = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError),
    *(EOFError, MemoryError, SyntaxError, ArithmeticError, struct.error),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile, tokenize.TokenError),
)
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_arrays(
    path: Path, names: Collection[str], form: int
) -> tuple[dict[str, np.ndarray], dict]:
    """Return the named arrays of a file, and ``about``.

    Args:
        path: the file.
        names: names of the arrays.
        form: the required ``format``.

    Raises:
        DAMAGED: the file cannot be read, or has another format.
    """
    members = {f"{name}.npy" for name in (*names, "about")}
    with open_archive(path, members) as archive:
        about = parse_json(str(parse_array(read_member(archive, "about.npy"))))
        if not isinstance(about, dict) or about.get("format") != form:
            raise ValueError(f"`format` must be {form}")
        arrays = {
            name: parse_array(read_member(archive, f"{name}.npy")) for name in names
        }
    return arrays, about


def parse_array(content: bytes) -> np.ndarray:
    """Return the array of a ``.npy`` file.

    Raises:
        DAMAGED: the content is no array, holds objects, or has another size than its
            header states; nothing is allocated for that size.
    """
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"an array of version {version}")
    shape, _, dtype = _HEADERS[version](file)
    size = len(content) - file.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"an array of {dtype} and shape {shape} in {size} bytes")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


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
