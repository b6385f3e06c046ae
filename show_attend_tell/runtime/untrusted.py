"""Read texts, JSON and members of archives from files that may be damaged or hostile.

Pipes, devices and sockets are refused, and files larger than a limit.
"""

import contextlib
import json
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from show_attend_tell.runtime.errors import ShowAttendTellError, one_line
from show_attend_tell.runtime.files import fault_of_locks

MAX_TEXT_BYTES = 500_000_000  # of a text file; the largest of COCO has 144 MB
# What zipfile raises for damaged archives, besides an OSError or a ValueError: a
# KeyError for an absent member, a RuntimeError for an encrypted one.
ZIP_FAULTS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, KeyError, RuntimeError),
)
# Methods whose output zipfile limits while it unpacks; it unpacks others whole.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextlib.contextmanager
def reading(
    path: object,
    error: type[ShowAttendTellError],
    remedy: str,
    absent: str | None = None,
) -> Iterator[None]:
    """Raise an error of one line for what the body raises for a damaged file.

    That is an OSError, or a ValueError of the parser or of a check in the body. Errors
    that are mistakes of this package, such as an AttributeError, pass as they are.

    Args:
        path: the file, as the line names it.
        error: the class to raise; errors of this package pass as they are.
        remedy: what the user can do.
        absent: what an absent file should have been, and what the user can do then; by
            default an absent file is like a damaged one.
    """
    try:
        yield
    # Before ValueError, its base class.
    except ShowAttendTellError:
        raise
    except (OSError, ValueError) as fault:
        message = f"cannot be read ({one_line(fault)}); {remedy}"
        if absent and isinstance(fault, FileNotFoundError):
            message = f"no such {absent}"
        elif of_locks := fault_of_locks(path, fault):
            message = of_locks
        raise error(f"{path}: {message}") from None


@contextlib.contextmanager
def as_value_error(*faults: type[Exception]) -> Iterator[None]:
    """Raise a ValueError in place of what a library raises for damaged files.

    Call only the library in the body: some libraries raise the same errors as mistakes
    of this package do, which must not be hidden.

    Args:
        *faults: the errors of the library.
    """
    try:
        yield
    except faults as fault:
        raise ValueError(one_line(fault)) from fault


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
    # The first two are ValueErrors as well, so they come before it.
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


def open_zip(path: str | os.PathLike[str]) -> zipfile.ZipFile:
    """Open a zip archive to read it.

    Raises:
        OSError, ValueError: it is absent or damaged.
    """
    with as_value_error(*ZIP_FAULTS):
        return zipfile.ZipFile(path)


def read_member(archive: zipfile.ZipFile, name: str, most: int | None = None) -> bytes:
    """Return the bytes of a member.

    Args:
        archive: the open archive.
        name: the member.
        most: the largest size in bytes; by default the size that the archive states.

    Raises:
        OSError, ValueError: the member is absent, damaged or larger.
    """
    with as_value_error(*ZIP_FAULTS):
        info = archive.getinfo(name)
    if info.compress_type not in _METHODS:
        raise ValueError(f"`{name}` is compressed by another method than deflate")
    if most is not None and info.file_size > most:
        raise ValueError(f"`{name}` has {info.file_size} bytes, more than {most}")
    with as_value_error(*ZIP_FAULTS), archive.open(info) as member:
        return member.read(info.file_size + 1)  # unpacks no more than that
