"""Write files atomically: a reader sees the old file or the new file, never a part.

If two processes write the same path, one may fail or rename a file that the other has
not finished; :func:`locked` prevents this.
"""

import contextlib
import errno
import hashlib
import io
import os
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import filelock

if sys.platform != "win32":
    import fcntl

LONGEST_NAME = 255  # bytes of a name, on most file systems
# Errors of taking a lock: the file system has none; another process holds it.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
_BLOCKED = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
TEMPORARY = ".writing-"  # begins the names of temporary files


@contextlib.contextmanager
def atomic_path(path: str | Path, unique: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the same folder and rename it to `path` at the end.

    The temporary file keeps the suffix, which some writers read, and is removed if the
    body raises an error. The body may make a folder instead of a file; a folder
    replaces only an empty folder. A replaced file gives its owner, mode and attributes
    to the new one, as far as this user may give them.

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
        # Before the file gets its name, so that nobody sees it with other permissions.
        _copy_ownership(path, temporary)
        os.replace(temporary, path)
    except OSError as error:
        # A full disk fails writes, whose errors name no file.
        if error.errno and error.filename in (None, str(temporary)):
            error.filename = str(path)
            error.filename2 = None
        raise
    finally:
        with contextlib.suppress(OSError):  # the folder cannot be written
            _remove(temporary)


@contextlib.contextmanager
def durable_path(path: str | Path, unique: bool = False) -> Iterator[Path]:
    """Yield an :func:`atomic_path`; flush its file to the disk before it is renamed.

    Otherwise a power failure could leave an empty file that counts as complete.

    Raises:
        OSError: see :func:`atomic_path`.
    """
    with atomic_path(path, unique) as temporary:
        yield temporary
        # Here, because atomic_path renames the file when its body has ended.
        with temporary.open("r+b") as file:  # Windows flushes only what it may write
            os.fsync(file.fileno())


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


def rewrite(path: str | Path, content: bytes) -> None:
    """Replace the content of a file of another program, and change nothing else of it.

    The file keeps its owner, mode, attributes and hard links. It is replaced atomically
    where a new file can have them all; otherwise its old content is restored if writing
    fails.

    Raises:
        OSError: the file is absent, read-only, or cannot be written.
    """
    path = Path(path)
    if is_read_only(path):
        raise PermissionError(errno.EACCES, "read-only", str(path))
    # The other names of a file with hard links would keep the old content.
    if path.stat().st_nlink == 1:
        with contextlib.suppress(PermissionError), atomic_path(path) as temporary:
            temporary.write_bytes(content)
            # atomic_path does so again; here it shows what this user may not give.
            _copy_ownership(path, temporary)
            if _ownership(temporary) != _ownership(path):
                # Suppressed above: the temporary file is removed, and the content is
                # written in place.
                raise PermissionError(errno.EPERM, "other owner", str(path))
            return
    old = path.read_bytes()
    # Unbuffered: a buffer would report a full disk when it is closed, too late here.
    with path.open("r+b", buffering=0) as file:
        try:
            _overwrite(file, content)
        except OSError:
            _overwrite(file, old)
            raise


def is_read_only(path: Path) -> bool:
    """Return whether a file may not be written, also by the superuser, who could."""
    return not path.stat().st_mode & 0o222 or not os.access(path, os.W_OK)


def _overwrite(file: io.FileIO, content: bytes) -> None:
    """Write the whole content of an open file."""
    file.seek(0)
    left = memoryview(content)
    while left:
        # An unbuffered write may take a part only.
        left = left[file.write(left) :]
    # Last: a file that was longer keeps its space until the new content is written.
    file.truncate()


def _copy_ownership(source: Path, target: Path) -> None:
    """Give a file the owner, mode and attributes of another, as far as possible."""
    try:
        old = source.lstat()
    except OSError:  # a new file
        return
    if not (stat.S_ISREG(old.st_mode) and target.is_file()):
        return
    new = target.stat()
    with contextlib.suppress(OSError, AttributeError):  # Windows has no owners
        # Before the mode, of which a change of the owner clears bits.
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.chown(target, old.st_uid, old.st_gid)
    with contextlib.suppress(OSError):
        shutil.copystat(source, target)
        # copystat copies the old times too, but the content is new.
        os.utime(target)


def _ownership(path: Path) -> tuple[object, ...]:
    """Return the owner, mode and extended attributes of a file."""
    found = path.stat()
    attributes = {}
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):  # not on this file system
            attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return found.st_uid, found.st_gid, found.st_mode, attributes


def fault_of_locks(path: object, error: BaseException) -> str | None:
    """Return the fault and the remedy if an error is about locks, otherwise None.

    HDF5 locks the files that it opens. NFS without its lock service, and some mounts of
    Lustre and GPFS, have no locks.

    Args:
        path: the file that was read or written.
        error: what was raised.
    """
    text = str(error)
    code = getattr(error, "errno", None)
    of_lock = "lock file" in text  # as HDF5 says; a name may have "lock" too
    if code == errno.ENOLCK or (code in _NO_LOCKS and of_lock):
        return (
            f"this file system has no file locks ({os.strerror(code)}); copy the files "
            "to a local disk, or set HDF5_USE_FILE_LOCKING=FALSE"
        )
    blocked = code in _BLOCKED and of_lock
    if blocked or "already open for write" in text or _is_locked_elsewhere(path):
        return "another process has this file open for writing; wait for its end"
    return None


def _is_locked_elsewhere(path: object) -> bool:
    """Return whether a process that writes a file has locked it, as HDF5 does."""
    if sys.platform == "win32" or not os.path.isfile(str(path)):
        return False
    try:
        # A shared lock, which only a writer's lock excludes; closing returns it.
        with open(str(path), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _BLOCKED
    return False


@contextlib.contextmanager
def locked(path: str | Path, taken: Exception, seconds: float = 0) -> Iterator[None]:
    """Hold a lock among processes, and remove the lock file at the end.

    A process that waits for the removed file starts over with a new one.

    Args:
        path: the lock file; its folder is made.
        taken: the error to raise if another process holds the lock.
        seconds: how long to wait for it.

    Raises:
        ShowAttendTellError: of the class of `taken`, the file system has no locks, or
            takes no new files.
        OSError: the lock file cannot be written; its ``filename`` is the folder.
    """
    path = _short(Path(path))
    # A soft lock would outlive a killed process, and stop every later one.
    lock = filelock.FileLock(path, timeout=seconds, fallback_to_soft=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout:
        if not path.exists():
            _require_creatable(path.parent, type(taken))
        raise taken from None
    except OSError as error:
        if error.errno in _NO_LOCKS:
            path.unlink(missing_ok=True)  # without locks no process can hold it
            raise type(taken)(
                f"{path.parent}: this file system has no file locks "
                f"({os.strerror(error.errno)}), without which two processes could "
                "write the same file; choose a folder on a local disk, or mount this "
                "one with locks"
            ) from None
        error.filename = str(path.parent)
        raise
    try:
        yield
    finally:
        # Removed while it is held: later it might be the lock of another process.
        with contextlib.suppress(OSError):  # Windows removes it with its release
            path.unlink()
        lock.release()


def _require_creatable(folder: Path, error_class: type[Exception]) -> None:
    """Raise an error if no file can be created in a folder.

    :mod:`filelock` waits where creating a file fails as in a folder that was removed,
    as it always does in `/proc`.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise error_class(
            f"{folder}: no file can be created here ({error.strerror}); choose a "
            "folder on a local disk"
        ) from None


def remove_empty(*folders: Path) -> None:
    """Remove folders that have neither files nor folders, in this order."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
