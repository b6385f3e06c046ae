"""Tell whether the file of a photo has changed since its features were extracted."""

import contextlib
import zlib
from collections.abc import Sequence
from pathlib import Path

from show_attend_tell.data.features import UNKNOWN_FILE, FeatureReader, PhotoFile
from show_attend_tell.data.manifest import Photo
from show_attend_tell.runtime.untrusted import require_regular


def file_of(path: Path) -> PhotoFile:
    """Return the size and the CRC-32 of a file, unknown if it cannot be read."""
    with contextlib.suppress(OSError):
        require_regular(path)
        content = path.read_bytes()
        return PhotoFile(len(content), zlib.crc32(content))
    return UNKNOWN_FILE


def has_changed(photo: Path, stored: PhotoFile, since: float) -> bool:
    """Return whether a photo's file has another content than when it was read.

    The content of a file of the same size is compared only if the file is newer than
    `since`: reading all photos of COCO takes minutes. A file that was renamed keeps the
    time of its content, but not the time of its status. A file that is absent or cannot
    be read has not changed.

    Args:
        photo: the file.
        stored: its content when it was read.
        since: a time at which the features were being extracted, or had been.
    """
    if stored == UNKNOWN_FILE:
        return False
    try:
        status = photo.stat()
    except OSError:
        return False
    if status.st_size != stored.size:
        return True
    # Equal times count, because file systems round them.
    is_newer = max(status.st_mtime, status.st_ctime) >= since
    return is_newer and file_of(photo) not in (stored, UNKNOWN_FILE)


def changed_photos(reader: FeatureReader, photos: Sequence[Photo]) -> set[str]:
    """Return the ids of photos whose files differ from those of their features."""
    extracted = reader.path.stat().st_mtime
    stored = reader.photo_files()
    return {
        photo.id
        for photo in photos
        if photo.id in reader.rows
        and has_changed(photo.path, stored[reader.rows[photo.id]], extracted)
    }
