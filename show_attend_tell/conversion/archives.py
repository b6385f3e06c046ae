"""Read members and arrays from zip archives that may be damaged or hostile.

Archives unpack to a size in proportion to the file. A ``.npz`` file holds arrays and
``about``, a JSON object with the key ``format``; none is a pickle.
"""

import contextlib
import io
import math
import tokenize
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from show_attend_tell.runtime.untrusted import (
    as_value_error,
    open_zip,
    parse_json,
    read_member,
    require_regular,
)

# Version 3.0 differs in names of fields that are not Latin-1; arrays here have no
# fields.
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@contextlib.contextmanager
def open_archive(
    path: Path, names: Collection[str] | None = None
) -> Iterator[zipfile.ZipFile]:
    """Open an archive; read its members with ``runtime.untrusted.read_member``.

    Args:
        path: the file.
        names: the names that members may have; any by default.

    Raises:
        OSError, ValueError: the file is absent or no archive, has a member twice or of
            another name, or is larger than its limits.
    """
    require_regular(path)
    with open_zip(path) as archive:
        listed = archive.namelist()
        # Two readers might take different members of one name.
        if len(set(listed)) < len(listed):
            raise ValueError("it holds a member twice")
        if names is not None and (strange := set(listed) - set(names)):
            raise ValueError(f"it also holds {min(strange)[:80]!r}")
        # The sizes that the archive states; `read_member` unpacks no more than these.
        size = sum(member.file_size for member in archive.infolist())
        limit = 50_000_000 + 8 * path.stat().st_size  # weights hardly compress
        if size > limit:
            raise ValueError(f"it unpacks to {size} bytes, more than {limit}")
        yield archive


def read_arrays(
    path: Path, names: Collection[str], form: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the named arrays of a file, and ``about``.

    Args:
        path: the file.
        names: names of the arrays.
        form: the required ``format``.

    Raises:
        OSError, ValueError: the file cannot be read, or has another format.
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
        ValueError: the content is no array, holds objects, or has another size than its
            header states; nothing is allocated for that size.
    """
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"an array of version {version}")
    # NumPy evaluates the header as Python.
    with as_value_error(SyntaxError, tokenize.TokenError, TypeError, IndexError):
        shape, _, dtype = _HEADERS[version](file)
    size = len(content) - file.tell()
    # Integers of Python, which a forged shape cannot make overflow.
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"an array of {dtype} and shape {shape} in {size} bytes")
    # read_array parses the header again, now that its size is known to be true.
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
