"""Write files atomically: a reader sees the old file or the new file, never a part.

If two processes write the same path, one may fail or rename a file that the other has
not finished; :func:`locked` prevents this.
"""

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import filelock

LONGEST_NAME = 255  # bytes of a name, on most file systems
TEMPORARY = ".writing-"  # begins the names of temporary files


@contextlib.contextmanager
def atomic_path(path: str | Path, unique: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the same folder and rename it to `path` at the end.

    The temporary file keeps the suffix, which some writers read, and is removed if the
    body raises an error. The body may make a folder instead of a file; a folder
    replaces only an empty folder.

    Args:
        path: the file or folder to write; its parent folder is made.
        unique: whether to choose a new temporary name each time, so that processes on
            several machines may write the same content without a lock. A killed
            process leaves its temporary file behind.

    Raises:
        OSError: the file cannot be written; its ``filename`` is set, and never names
            the temporary file.
    """
    path = Path(path)
    mark = f"{uuid.uuid4().hex}-" if unique else ""
    temporary = _short(path.with_name(f"{TEMPORARY}{mark}{path.name}"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(temporary)  # left by a process that was killed
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        # A full disk fails writes, whose errors name no file.
        if error.errno and error.filename in (None, str(temporary)):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with contextlib.suppress(OSError):  # the folder cannot be written
            _remove(temporary)


def _short(path: Path) -> Path:
    """Return the path; a name that is too long is replaced by its digest."""
    if len(os.fsencode(path.name)) <= LONGEST_NAME:
        return path
    digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()
    suffix = path.suffix if len(path.suffix) < 10 else ""
    return path.with_name(f"{TEMPORARY}{digest}{suffix}")


def atomic_write(path: str | Path, content: str | bytes) -> None:
    """Write a whole file atomically; text is encoded as UTF-8.

    Args:
        path: the file; its parent folder is made.
        content: text or bytes.

    Raises:
        OSError: the folder cannot be written or the disk is full; an existing file
            stays as it was.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def locked(path: str | Path, taken: Exception, seconds: float = 0) -> Iterator[None]:
    """Hold a lock among processes, and remove the lock file at the end.

    A process that waits for the removed file starts over with a new one.

    Args:
        path: the lock file; its folder is made.
        taken: the error to raise if another process holds the lock.
        seconds: how long to wait for it.

    Raises:
        OSError: the lock file cannot be written; its ``filename`` is the folder.
    """
    path = _short(Path(path))
    lock = filelock.FileLock(path, timeout=seconds)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout:
        raise taken from None
    except OSError as error:
        error.filename = str(path.parent)
        raise
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows removes it with its release
            path.unlink()
        lock.release()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
