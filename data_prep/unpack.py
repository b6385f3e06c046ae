"""Unpack photos from zip archives into one folder, resuming earlier work."""

import errno
import logging
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from data_prep.disk import format_bytes, require_space
from data_prep.locate import DAMAGED_ARCHIVE, Packed
from data_prep.problems import DAMAGED_ENTRY, Problems, printable
from show_attend_tell.runtime.errors import DataError, one_line
from show_attend_tell.runtime.files import atomic_path

Progress = Callable[[str, int, int], None]
"""Called with the name of the work, the number of items done and the total."""

_LONGEST_FAULT = 200  # characters of a message
_LOGGER = logging.getLogger(__name__)
# A bzip2 stream is damaged (no number), the name is too long, the offset is negative.
_FAULTS_OF_ENTRIES = (None, errno.ENAMETOOLONG, errno.EINVAL)


def missing_photos(
    photos: Mapping[str, Path | Packed], photo_folder: Path
) -> dict[str, Packed]:
    """Return the packed photos whose file is absent or has another size.

    Args:
        photos: file name -> location of the photo; unpacked photos are ignored.
        photo_folder: the folder of unpacked photos, which may be absent.
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


def unpack(
    photos: Mapping[str, Path | Packed],
    photo_folder: Path,
    progress: Progress | None = None,
) -> Problems:
    """Unpack the photos that are not unpacked yet.

    Only the file name of an entry is used, so no entry can leave ``photo_folder``.

    Returns:
        The damaged entries, whose photos are not written.

    Raises:
        DataError: the disk is full or cannot be written.
    """
    problems = Problems()
    missing = missing_photos(photos, photo_folder)
    size = sum(photo.member.file_size for photo in missing.values())
    require_space(size, photo_folder, "unpacked photos", DataError)
    by_archive: dict[Path, list[str]] = {}
    for name, photo in missing.items():
        by_archive.setdefault(photo.archive, []).append(name)
    if missing:
        _LOGGER.info("unpacking %d photos, %s", len(missing), format_bytes(size))
    done = 0
    for path, names in by_archive.items():
        try:
            photo_folder.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(path) as archive:
                for name in names:
                    fault = _unpack_one(archive, missing[name], photo_folder / name)
                    if fault:
                        _LOGGER.warning("%s: %s: %s", path, printable(name), fault)
                        problems.add(DAMAGED_ENTRY, f"{path.name}: {name}")
                    done += 1
                    if progress:
                        progress("unpacking photos", done, len(missing))
        except (*DAMAGED_ARCHIVE, OSError) as error:
            raise DataError(
                f"{path}: cannot be unpacked into {photo_folder}: {one_line(error)}"
            ) from None
    return problems


def _unpack_one(archive: zipfile.ZipFile, photo: Packed, target: Path) -> str | None:
    """Unpack a photo atomically; return the fault of a damaged entry, or None."""
    try:
        with (
            archive.open(photo.member) as packed,
            atomic_path(target) as temporary,
            temporary.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file)
    except DAMAGED_ARCHIVE as error:
        return str(error)[:_LONGEST_FAULT]
    except OSError as error:
        if error.errno not in _FAULTS_OF_ENTRIES:
            raise
        return str(error)
    return None
