"""Unpack photos from zip archives: safely, and resumably after a kill."""

import logging
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from data_prep.locate import Packed
from data_prep.problems import DAMAGED_ENTRY, Problems
from show_attend_tell.runtime.errors import DataError

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done and how much there is."""

_LOGGER = logging.getLogger(__name__)


def waiting(
    photos: Mapping[str, Path | Packed], photo_folder: Path
) -> dict[str, Packed]:
    """Return the photos that are still to be unpacked.

    A photo is complete when its file has the size the archive gives: files get
    their name only when whole.
    """
    sizes = {}
    if photo_folder.is_dir():
        with os.scandir(photo_folder) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
    return {
        name: photo
        for name, photo in photos.items()
        if isinstance(photo, Packed) and sizes.get(name) != photo.member.file_size
    }


def _unpack_one(archive: zipfile.ZipFile, photo: Packed, target: Path) -> None:
    unfinished = target.with_name(target.name + ".part")
    try:
        with archive.open(photo.member) as packed, unfinished.open("wb") as file:
            shutil.copyfileobj(packed, file)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def unpack(
    photos: Mapping[str, Path | Packed],
    photo_folder: Path,
    progress: Progress | None = None,
) -> Problems:
    """Unpack what is not yet unpacked.

    The folders inside an archive are not followed: every photo lands in
    ``photo_folder`` under its own file name, so no entry can leave it.

    Args:
        photos: file name -> where the photo lies; unpacked ones are left alone.
        photo_folder: where to.
        progress: called after every photo.

    Returns:
        The entries that are damaged; their photos are not there.

    Raises:
        DataError: the disk is full or cannot be written.
    """
    problems = Problems()
    todo = waiting(photos, photo_folder)
    by_archive: dict[Path, list[str]] = {}
    for name, photo in todo.items():
        by_archive.setdefault(photo.archive, []).append(name)
    done = 0
    for path, names in by_archive.items():
        _LOGGER.info("unpacking %d photos from %s", len(names), path)
        try:
            photo_folder.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(path) as archive:
                for name in names:
                    try:
                        _unpack_one(archive, todo[name], photo_folder / name)
                    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                        _LOGGER.warning("%s: %s: %s", path, name, error)
                        problems.add(DAMAGED_ENTRY, f"{path.name}: {name}")
                    done += 1
                    if progress:
                        progress("unpacking photos", done, len(todo))
        except (OSError, RuntimeError, NotImplementedError) as error:
            raise DataError(
                f"{path}: cannot be unpacked into {photo_folder}: {error}"
            ) from None
    return problems
