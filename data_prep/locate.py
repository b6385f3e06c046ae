"""Find photos and text files below a folder and in its zip archives."""

import lzma
import os
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from data_prep.problems import (
    BROKEN_LINK,
    SPECIAL_FILE,
    UNREADABLE_FOLDER,
    UNSAFE_ENTRY,
    Problems,
)
from show_attend_tell.data.preprocessing import is_photo
from show_attend_tell.runtime.errors import DataError, one_line
from show_attend_tell.runtime.regular_files import (
    MAX_TEXT_BYTES,
    read_text_bytes,
    require_within,
)

# Errors of the standard library for archives and entries that are damaged, encrypted
# or of an unknown kind. Bzip2 reports damage by an OSError without a number.
DAMAGED_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,
    LookupError,
    ArithmeticError,
    RuntimeError,
)
PHOTOS = "photos"  # folder of unpacked photos, beside the manifest
_DEPTH = 4  # levels of folders searched below the data folder


class TextFile(NamedTuple):
    """The text of a file, and the name of the file in messages."""

    label: str
    text: str


def _decode(label: str, content: bytes) -> TextFile:
    try:
        return TextFile(label, content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{label}: must be UTF-8 text: {error}; convert the file"
        ) from None


@dataclass(frozen=True)
class Packed:
    """A photo inside a zip archive."""

    archive: Path
    member: zipfile.ZipInfo


def is_safe(member: zipfile.ZipInfo) -> bool:
    """Return whether an archive entry is a plain file inside its folder."""
    name = member.filename.replace("\\", "/")
    outside = name.startswith("/") or ".." in name.split("/") or ":" in name
    link = stat.S_ISLNK(member.external_attr >> 16)
    return bool(name) and not (outside or link or "\0" in name)


def _is_hidden(name: str) -> bool:
    return name == "__MACOSX" or name.startswith(".")


def find_files(folder: Path, leave_out: Path, problems: Problems) -> list[Path]:
    """Return every file below a folder, sorted, shallow files first.

    Hidden files, hidden folders and folders below the fourth level are ignored.
    Symlinked folders are followed unless they point back into the folder or to a
    folder above it, so that no file is found twice.

    Args:
        folder: the folder to search.
        leave_out: a folder that is not entered.
        problems: receives broken links, unreadable folders, pipes and devices.

    Raises:
        OSError: the folder itself cannot be read.
    """
    root = os.path.realpath(folder)
    visited = {os.path.realpath(leave_out)}
    files: list[Path] = []

    def report(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise error
        problems.add(UNREADABLE_FOLDER, f"{error.filename}: {error.strerror}")

    for place, folders, names in os.walk(folder, onerror=report, followlinks=True):
        entered = []
        deepest = len(Path(place).relative_to(folder).parts) == _DEPTH
        for name in () if deepest else sorted(folders):
            path = Path(place, name)
            real = os.path.realpath(path)
            points_back = os.path.commonpath([real, root]) in (real, root)
            if not (_is_hidden(name) or (path.is_symlink() and points_back)):
                entered += [] if real in visited else [name]
                visited.add(real)
        folders[:] = entered  # os.walk enters these only
        for name in sorted(names):
            path = Path(place, name)
            if _is_hidden(name):
                continue
            if os.path.isfile(path):  # Path.is_file raises for a link that loops
                files.append(path)
            else:
                broken = path.is_symlink() and not os.path.exists(path)
                problems.add(BROKEN_LINK if broken else SPECIAL_FILE, str(path))
    return sorted(files, key=lambda path: (len(path.parts), path))


class DataFolder:
    """Index of the photos and text files below the user's data folder.

    Args:
        folder: the data folder.
        prepared: the folder of the prepared data, which is not entered. Packed photos
            will be unpacked into its subfolder ``photos``.

    Attributes:
        folder: the data folder, absolute.
        unpacked: the folder of unpacked photos.
        photos: file name -> location of the photo, unpacked photos preferred.
        photo_files: paths of all unpacked photos.
        found_twice: names of photos in two folders; the first is used.
        problems: unsafe archive entries, broken links, unreadable folders, pipes and
            devices.

    Raises:
        DataError: the folder is absent or an archive is damaged.
    """

    def __init__(self, folder: Path, prepared: Path):
        if not folder.is_dir():
            raise DataError(
                f"{folder}: no such folder; name the folder that holds the photos "
                "and captions"
            )
        self.folder, self.unpacked = folder.absolute(), prepared / PHOTOS
        self.problems = Problems()
        self.found_twice: set[str] = set()
        self.photos: dict[str, Path | Packed] = {}
        self.photo_files: list[Path] = []
        self._texts: dict[str, Path | Packed] = {}
        try:
            files = find_files(self.folder, prepared, self.problems)
        except OSError as error:
            raise DataError(f"{folder}: cannot be read: {error}") from None
        for path in files:
            if path.suffix.lower() != ".zip":
                self._add(path.name, path)
        for path in files:  # later than all files: unpacked photos are preferred
            if path.suffix.lower() == ".zip":
                self._add_archive(path)

    def _add(self, name: str, place: Path | Packed) -> None:
        photo = is_photo(name)
        if photo and isinstance(place, Path):
            self.photo_files.append(place)
        places = self.photos if photo else self._texts
        earlier = places.setdefault(name, place)
        if photo and earlier is not place and type(earlier) is type(place):
            self.found_twice.add(name)

    def _add_archive(self, path: Path) -> None:
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except (*DAMAGED_ARCHIVE, OSError) as error:
            raise DataError(
                f"{path}: not a complete zip archive ({error}); download it again"
            ) from None
        for member in members:
            name = PurePosixPath(member.filename)
            if not is_safe(member):
                entry = f"{path.name}: {member.filename!r}"
                self.problems.add(UNSAFE_ENTRY, entry)
            elif not member.is_dir() and not any(map(_is_hidden, name.parts)):
                self._add(name.name, Packed(path, member))

    def text(self, *names: str) -> TextFile | None:
        """Return the text file with the first of the names that exists, or None.

        Args:
            names: file names, the preferred one first.

        Raises:
            DataError: the file cannot be read, or is not UTF-8.
        """
        for name in names:
            place = self._texts.get(name)
            if isinstance(place, Packed):
                return _read_member(place)
            if place is not None:
                return read_text_file(place)
        return None

    def require_text(self, *names: str) -> TextFile:
        """Return the file of :meth:`text`.

        Raises:
            DataError: no file has one of the names, or it cannot be read.
        """
        file = self.text(*names)
        if file is None:
            raise DataError(
                f"{self.folder}: {' or '.join(names)} must be in this folder, below "
                "it or in a zip archive there; add the file or name another folder"
            )
        return file

    def places(self) -> dict[str, Path]:
        """Return file name -> path of every photo, after unpacking.

        Raises:
            DataError: the folder has no photos.
        """
        if not self.photos:
            raise DataError(
                f"{self.folder}: no photo is in this folder, below it or in a zip "
                "archive there; add the photos (unpack .tar archives yourself) or "
                "name another folder"
            )
        return {
            name: self.unpacked / name if isinstance(place, Packed) else place
            for name, place in self.photos.items()
        }


def read_text_file(path: Path) -> TextFile:
    """Read a text file, labelled with its path.

    Raises:
        DataError: the file is too large, cannot be read, or is not UTF-8.
    """
    try:
        content = read_text_bytes(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    return _decode(str(path), content)


def _read_member(place: Packed) -> TextFile:
    label = f"{place.archive}:{place.member.filename}"
    try:
        with zipfile.ZipFile(place.archive) as archive:
            require_within(place.member.file_size)
            with archive.open(place.member) as file:
                content = file.read(MAX_TEXT_BYTES + 1)  # the size may be forged
            require_within(len(content))
    except (*DAMAGED_ARCHIVE, OSError) as error:
        raise DataError(f"{label}: cannot be unpacked: {one_line(error)}") from None
    return _decode(label, content)
