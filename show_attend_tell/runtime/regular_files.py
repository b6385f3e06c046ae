"""Refuse to read pipes, devices, sockets, and files larger than a limit."""

import os
import stat
from pathlib import Path

MAX_TEXT_BYTES = 500_000_000  # of a text file; the largest of COCO has 144 MB


def require_regular(path: str | os.PathLike) -> None:
    """Raise an error unless a path names a regular file.

    Opening a named pipe waits for its writer, and a device may have no end.

    Raises:
        OSError: the path is absent, or names no regular file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("not a regular file")


def read_text_bytes(path: str | os.PathLike, limit: int = MAX_TEXT_BYTES) -> bytes:
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
