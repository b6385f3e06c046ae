"""Read texts, JSON, archives and arrays from files that may be damaged or hostile.

Pipes, devices and sockets are refused, and files larger than a limit. Archives unpack
to a size in proportion to the file. A ``.npz`` file
holds arrays and ``about``, a JSON object with the key ``format``; none is a pickle.
Matrices may have 8 bits per number, and beside them the scales of their columns.
"""

import contextlib
import io
import json
import lzma
import math
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from show_attend_tell.runtime.errors import ShowAttendTellError, one_line
from show_attend_tell.runtime.files import fault_of_locks

MAX_TEXT_BYTES = 500_000_000  # of a text file; the largest of COCO has 144 MB
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
# Methods whose output zipfile limits while it unpacks; it unpacks others whole.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextlib.contextmanager
def reading(
    path: object,
    error: type[ShowAttendTellError],
    remedy: str,
    absent: str | None = None,
) -> Iterator[None]:
    """Convert what the body raises for a damaged file to one line.

    Args:
        path: the file, as the line names it.
        error: the class to raise; errors of this package pass as they are.
        remedy: what the user can do.
        absent: what an absent file should have been, and what the user can do then; by
            default an absent file is like a damaged one.
    """
    try:
        yield
    except ShowAttendTellError:
        raise
    except DAMAGED as fault:
        message = f"cannot be read ({one_line(fault)}); {remedy}"
        if absent and isinstance(fault, FileNotFoundError):
            message = f"no such {absent}"
        elif of_locks := fault_of_locks(path, fault):
            message = of_locks
        raise error(f"{path}: {message}") from None


def require_regular(path: str | os.PathLike[str]) -> None:
    """Raise an error unless a path names a regular file.

    Opening a named pipe waits for its writer, and a device may have no end.

    Raises:
        OSError: the path is absent, or names no regular file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("not a regular file")


def read_text_bytes(path: str | os.PathLike[str], limit: int = MAX_TEXT_BYTES) -> bytes:
    """Return the content of a regular file.

    Args:
        path: path of the file.
        limit: maximum number of bytes.

    Raises:
        OSError: the file is absent, not a regular file, or larger than the limit.
    """
    require_regular(path)
    with Path(path).open("rb") as file:
        require_within(os.fstat(file.fileno()).st_size, limit)
        content = file.read(limit + 1)  # the file may have grown since
    require_within(len(content), limit)
    return content


def require_within(size: int, limit: int = MAX_TEXT_BYTES) -> None:
    """Raise an error if a size in bytes exceeds a limit.

    Raises:
        OSError: the size is larger.
    """
    if size > limit:
        raise OSError(f"must have at most {limit:,} bytes. Received: {size:,}")


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON document; bytes are decoded as UTF-8, UTF-16 or UTF-32.

    Raises:
        ValueError: the document is malformed, nested too deeply or has a huge number;
            the message is short and on one line.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise ValueError(f"{error.msg}: {place}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not {error.encoding} at byte {error.start}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:  # of int, which converts at most 4300 digits
        raise ValueError("a number has too many digits") from None


def is_encodable(text: str) -> bool:
    """Return whether UTF-8 can encode a text; JSON may contain lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_text(value: object) -> bool:
    """Return whether a value is a text that is not empty and that UTF-8 can encode."""
    return isinstance(value, str) and bool(value) and is_encodable(value)


@contextlib.contextmanager
def open_archive(
    path: Path, names: Collection[str] | None = None
) -> Iterator[zipfile.ZipFile]:
    """Open an archive; read its members with :func:`read_member`.

    Args:
        path: the file.
        names: the names that members may have; any by default.

    Raises:
        OSError, ValueError, zipfile.BadZipFile: the file is absent or no archive, has
            a member twice or of another name, or is larger than its limits.
    """
    require_regular(path)
    with zipfile.ZipFile(path) as archive:
        listed = archive.namelist()
        if len(set(listed)) < len(listed):
            raise ValueError("it holds a member twice")
        if names is not None and (strange := set(listed) - set(names)):
            raise ValueError(f"it also holds {min(strange)[:80]!r}")
        size = sum(member.file_size for member in archive.infolist())
        most = 50_000_000 + 8 * path.stat().st_size  # weights hardly compress
        if size > most:
            raise ValueError(f"it unpacks to {size} bytes, more than {most}")
        yield archive


def read_member(archive: zipfile.ZipFile, name: str, most: int | None = None) -> bytes:
    """Return the bytes of a member.

    Args:
        archive: from :func:`open_archive`.
        name: the member.
        most: the largest size in bytes; by default the size that the archive states.

    Raises:
        KeyError, ValueError, zipfile.BadZipFile: the member is absent, damaged or
            larger.
    """
    info = archive.getinfo(name)
    if info.compress_type not in _METHODS:
        raise ValueError(f"`{name}` is compressed by another method than deflate")
    if most is not None and info.file_size > most:
        raise ValueError(f"`{name}` has {info.file_size} bytes, more than {most}")
    with archive.open(info) as member:
        return member.read(info.file_size + 1)  # unpacks no more than that


def read_arrays(
    path: Path, names: Collection[str], form: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
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
    array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return array


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
    """Return the float32 kernel of :func:`quantise`'s values; infinity if too large."""
    with np.errstate(over="ignore", invalid="ignore"):
        kernel: np.ndarray = q.astype(np.float32) * scale
    return kernel
