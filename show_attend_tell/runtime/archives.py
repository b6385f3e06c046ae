"""Read zip archives that may be damaged or hostile, within limits of memory."""

import contextlib
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

from show_attend_tell.runtime.regular_files import require_regular

# Methods whose output zipfile limits while it unpacks; it unpacks others whole.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DIRECTORY = 1_000_000  # bytes of the list of members
_END = b"PK\x05\x06"  # of the record at the end, which states the size of that list
_END_SIZE, _COMMENT = 22, 65_535  # bytes of the record, and at most of its comment


def unpacked_limit(path: Path) -> int:
    """Return how many bytes a file may unpack to: weights hardly compress."""
    return 50_000_000 + 8 * path.stat().st_size


@contextlib.contextmanager
def open_archive(
    path: Path, names: Collection[str] | None = None
) -> Iterator[zipfile.ZipFile]:
    """Open an archive; read its members with :func:`read_member`.

    Args:
        path: the file.
        names: the names that members may have; any by default.

    Raises:
        OSError, ValueError, zipfile.BadZipFile: the file is absent or no archive, has
            a member twice or of another name, or is larger than its limits.
    """
    require_regular(path)
    _require_short_directory(path)
    with zipfile.ZipFile(path) as archive:
        listed = archive.namelist()
        if len(set(listed)) < len(listed):
            raise ValueError("it holds a member twice")
        if names is not None and (strange := set(listed) - set(names)):
            raise ValueError(f"it also holds {min(strange)[:80]!r}")
        size, most = sum(m.file_size for m in archive.infolist()), unpacked_limit(path)
        if size > most:
            raise ValueError(f"it unpacks to {size} bytes, more than {most}")
        yield archive


def read_member(archive: zipfile.ZipFile, name: str, most: int | None = None) -> bytes:
    """Return the bytes of a member.

    Args:
        archive: from :func:`open_archive`.
        name: the member.
        most: the largest size in bytes; by default the size that the archive states.

    Raises:
        KeyError, ValueError, zipfile.BadZipFile: the member is absent, damaged or
            larger.
    """
    info = archive.getinfo(name)
    if info.compress_type not in _METHODS:
        raise ValueError(f"`{name}` is compressed by another method than deflate")
    if most is not None and info.file_size > most:
        raise ValueError(f"`{name}` has {info.file_size} bytes, more than {most}")
    with archive.open(info) as member:
        return member.read(info.file_size + 1)  # unpacks no more than that


def _require_short_directory(path: Path) -> None:
    """Raise a ValueError if opening the archive would list too many members."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - _END_SIZE - _COMMENT))
        tail = file.read()
    start = tail.rfind(_END)
    size = int.from_bytes(tail[start + 12 : start + 16], "little")
    if start >= 0 and size > _DIRECTORY:
        raise ValueError(f"its list of members has {size} bytes")
