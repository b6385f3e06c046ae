"""Find photos: files, and folders with all photos inside them."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from show_attend_tell.data.preprocessing import is_photo, is_raw, remedy
from show_attend_tell.inference.result import Failure


def find_photos(
    paths: Iterable[str | os.PathLike | Failure],
) -> Iterator[Path | Failure]:
    """Yield photos named directly, and the photos inside folders.

    A file is yielded whatever its suffix. Inside a folder only files with one of
    ``data.preprocessing.PHOTO_SUFFIXES`` are yielded, sorted by name, before those of
    its subfolders; hidden files and folders are ignored. Symlinked folders are followed
    unless they point back into the folder being scanned, and no folder is scanned
    twice.

    Args:
        paths: files and folders; a Failure is passed through.

    Yields:
        Paths, and a Failure for a folder that cannot be read or has no photo, for a
        symlink that cannot be followed, for a named pipe, socket or device in place of
        a photo, and for a photo of a folder whose format cannot be decoded, but not for
        a raw photo beside a photo of the same name.
    """
    for path in paths:
        if isinstance(path, Failure):
            yield path
        elif os.path.isdir(path):
            folder = Path(path)
            inside = list(_scan(folder))
            yield from inside or [Failure(folder, f"{folder}: no photo in this folder")]
        else:
            yield _special(Path(path)) if _is_special(path) else Path(path)


def _scan(root: Path) -> Iterator[Path | Failure]:
    """Yield the photos in a folder and its subfolders."""
    real_root = os.path.realpath(root)
    scanned = {real_root}
    waiting = [(os.fspath(root), real_root)]  # folders, and their paths without links
    while waiting:  # no recursion, for folders may be nested deeply
        folder, real = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield Failure(Path(folder), f"{folder}: {error.strerror}")
            continue
        subfolders = []
        stems = {Path(entry.name).stem for entry in entries if is_photo(entry.name)}
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not _is_folder(entry):
                if not (is_raw(entry.name) and Path(entry.name).stem in stems):
                    yield from _check(Path(entry.path))
            elif inside := _unscanned(entry, real, real_root, scanned):
                subfolders.append((entry.path, inside))
        waiting += reversed(subfolders)


def _is_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed
        return False


def _unscanned(
    entry: os.DirEntry, real_parent: str, real_root: str, scanned: set[str]
) -> str | None:
    """Return a subfolder's path without links and record it; None: do not scan it."""
    real = os.path.join(real_parent, entry.name)
    if entry.is_symlink():
        real = os.path.realpath(entry.path)
        if os.path.commonpath([real, real_root]) in (real, real_root):
            return None  # it points back
    if real in scanned:
        return None
    scanned.add(real)
    return real


def _check(path: Path) -> Iterator[Path | Failure]:
    """Yield a photo of a folder, a Failure, or nothing for other files."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        yield Failure(path, f"{path}: {error.strerror}")
        return
    if unsupported := remedy(path):
        yield Failure(path, f"{path}: {unsupported}")
    elif is_photo(path):
        yield path if stat.S_ISREG(mode) else _special(path)


def _is_special(path: str | os.PathLike) -> bool:
    """Return whether a path is a named pipe, a socket or a device."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False  # decoding it gives the reason


def _special(path: Path) -> Failure:
    """Return the Failure of a file that is never opened, since reading may block."""
    return Failure(
        path, f"{path}: a named pipe, socket or device is no photo; name a regular file"
    )
