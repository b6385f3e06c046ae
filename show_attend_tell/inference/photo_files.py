"""Photos that paths name: files, and folders with all that lies in them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from show_attend_tell.data.preprocessing import PHOTO_SUFFIXES
from show_attend_tell.inference.result import Failure


def find_photos(paths: Iterable[str | Path]) -> Iterator[Path | Failure]:
    """Yield the photos that paths name, with those in folders, sorted by name.

    A file named is taken whatever its ending is; in folders the ending decides, and
    hidden files and folders are passed over. A link to a photo counts as a photo. A
    link to a folder is followed where it leads out of the folder named, so that
    loops end and no folder is walked twice. A Failure stands for a folder that cannot
    be read or holds no photo.
    """
    for path in map(Path, paths):
        if path.is_dir():
            inside = list(_walk(path, os.path.realpath(path), set()))
            yield from inside or [Failure(path, f"{path}: no photo in this folder")]
        else:
            yield path


def _walk(
    folder: Path, root: str, visited: set[tuple[int, int]]
) -> Iterator[Path | Failure]:
    """Walk a folder unless it was visited; links back into ``root`` are left out."""
    try:
        found = folder.stat()
        if (found.st_dev, found.st_ino) in visited:
            return
        visited.add((found.st_dev, found.st_ino))
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Failure(folder, f"{folder}: {error.strerror}")
        return
    for entry in entries:
        path = folder / entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if not (entry.is_symlink() and _leads_back(path, root)):
                yield from _walk(path, root, visited)
        elif path.suffix.lower() in PHOTO_SUFFIXES and (
            entry.is_file() or entry.is_symlink()
        ):
            yield path  # a broken link too, so that it is listed


def _leads_back(link: Path, root: str) -> bool:
    """Tell whether a link leads into ``root``, or to a folder that holds ``root``."""
    real = os.path.realpath(link)
    return os.path.commonpath([real, root]) in (real, root)
