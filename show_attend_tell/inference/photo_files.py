"""Find photos: files, and folders with all photos inside them."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from show_attend_tell.data.preprocessing import PHOTO_SUFFIXES
from show_attend_tell.inference.result import Failure


def find_photos(
    paths: Iterable[str | os.PathLike | Failure],
) -> Iterator[Path | Failure]:
    """Yield photos named directly, and the photos inside folders.

    A file is yielded whatever its suffix. Inside a folder only files with one of
    :data:`PHOTO_SUFFIXES` are yielded, sorted by name, before those of its subfolders;
    hidden files and folders are ignored. Symlinked folders are followed unless they
    point back into the folder being scanned, and no folder is scanned twice.

    Args:
        paths: files and folders; a Failure is passed through.

    Yields:
        Paths, and a Failure for a folder that cannot be read or has no photo and for
        a symlink that cannot be followed.
    """
    for path in paths:
        if isinstance(path, Failure):
            yield path
        elif os.path.isdir(path):
            folder = Path(path)
            inside = list(_scan(folder))
            yield from inside or [Failure(folder, f"{folder}: no photo in this folder")]
        else:
            yield Path(path)


def _scan(root: Path) -> Iterator[Path | Failure]:
    """Yield the photos in a folder and its subfolders."""
    failures: list[Failure] = []

    def fail(error: OSError) -> None:
        path = Path(error.filename)
        failures.append(Failure(path, f"{path}: {error.strerror}"))

    real_root = os.path.realpath(root)
    scanned = {real_root}
    for folder, subfolders, files in os.walk(root, onerror=fail, followlinks=True):
        # os.walk descends into the names that are left in the list.
        subfolders[:] = [
            name
            for name in sorted(subfolders)
            if not name.startswith(".")
            and _is_new(os.path.join(folder, name), real_root, scanned)
        ]
        for name in sorted(files):
            if not name.startswith("."):
                yield from _check(Path(folder, name))
        yield from failures
        failures.clear()
    yield from failures


def _is_new(folder: str, real_root: str, scanned: set[str]) -> bool:
    """Return whether to scan a subfolder, and record it as scanned."""
    real = os.path.realpath(folder)
    points_back = os.path.commonpath([real, real_root]) in (real, real_root)
    if real in scanned or (points_back and os.path.islink(folder)):
        return False
    scanned.add(real)
    return True


def _check(path: Path) -> Iterator[Path | Failure]:
    """Yield a photo, a Failure for a symlink that cannot be followed, or nothing."""
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        yield Failure(path, f"{path}: {error.strerror}")
        return
    if is_file and path.suffix.lower() in PHOTO_SUFFIXES:
        yield path
