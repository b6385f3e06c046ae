"""Find photos and text files below a folder, including those in zip archives."""

import lzma
import os
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

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
_DEPTH = 4  # levels of folders searched below the data folder


@dataclass(frozen=True)
class TextFile:
    """A text file.

    Attributes:
        label: its name in messages.
        content: its bytes.
    """

    label: str
    content: bytes

    def text(self) -> str:
        """Return the content as text.

        Raises:
            DataError: the content is not UTF-8.
        """
        try:
            return self.content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.label}: must be UTF-8 text: {error}; convert the file"
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
    """Return every file below a folder, in a fixed order, shallow files first.

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
    visited = {os.path.realpath(leave_out)} - {root}
    files: list[Path] = []
    level = [folder]
    for _ in range(_DEPTH + 1):
        deeper: list[Path] = []
        for place in level:
            real = os.path.realpath(place)
            if real in visited:
                continue
            visited.add(real)
            try:
                found = _visible_entries(place)
            except OSError as error:
                if place is folder:
                    raise
                problems.add(UNREADABLE_FOLDER, f"{place}: {error.strerror}")
                continue
            for entry in found:
                path, link = place / entry.name, entry.is_symlink()
                # For a link that loops DirEntry raises and os.path returns False.
                if os.path.isdir(path) if link else entry.is_dir():
                    if not (link and _points_back(path, root)):
                        deeper.append(path)
                elif os.path.isfile(path) if link else entry.is_file():
                    files.append(path)
                else:
                    broken = link and not os.path.exists(path)
                    problems.add(BROKEN_LINK if broken else SPECIAL_FILE, str(path))
        level = deeper
    return files


def _visible_entries(folder: Path) -> list[os.DirEntry]:
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not _is_hidden(entry.name)]
    return sorted(visible, key=lambda entry: entry.name)


def _points_back(link: Path, root: str) -> bool:
    """Return whether a link points into `root` or to a folder above it."""
    real = os.path.realpath(link)
    return os.path.commonpath([real, root]) in (real, root)


class DataFolder:
    """Index of the photos and text files below the user's data folder.

    Args:
        folder: the data folder.
        leave_out: a folder that is not entered: that of the prepared data.

    Attributes:
        photos: file name -> location of the photo, unpacked photos preferred.
        photo_files: paths of all unpacked photos.
        found_twice: names of photos in two folders; the first is used.
        problems: unsafe archive entries, broken links, unreadable folders, pipes and
            devices.

    Raises:
        DataError: the folder is absent or an archive is damaged.
    """

    def __init__(self, folder: Path, leave_out: Path):
        if not folder.is_dir():
            raise DataError(
                f"{folder}: no such folder; name the folder that holds the photos "
                "and captions"
            )
        self.folder = folder.absolute()
        self.problems = Problems()
        self.found_twice: set[str] = set()
        self.photos: dict[str, Path | Packed] = {}
        self.photo_files: list[Path] = []
        self._texts: dict[str, Path | Packed] = {}
        try:
            files = find_files(self.folder, leave_out, self.problems)
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
        found = self.photos if photo else self._texts
        earlier = found.setdefault(name, place)
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
        """Return the first text file found among some names, or None.

        Args:
            names: file names, the preferred one first.

        Raises:
            DataError: the file cannot be read.
        """
        for name in names:
            place = self._texts.get(name)
            if place is None:
                continue
            if isinstance(place, Path):
                return read_text_file(place)
            label = f"{place.archive}:{place.member.filename}"
            return TextFile(label, _content_of_member(place, label))
        return None

    def require_text(self, *names: str) -> TextFile:
        """Return the first text file found among some names.

        Args:
            names: file names, the preferred one first.

        Raises:
            DataError: no file has one of the names, or it cannot be read.
        """
        found = self.text(*names)
        if found is None:
            raise DataError(
                f"{self.folder}: {' or '.join(names)} must be in this folder, below "
                "it or in a zip archive there; add the file or name another folder"
            )
        return found

    def places(self, photo_folder: Path) -> dict[str, Path]:
        """Return the path of every photo, of packed photos after unpacking.

        Args:
            photo_folder: the folder of unpacked photos.

        Returns:
            File name -> path.

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
            name: photo_folder / name if isinstance(place, Packed) else place
            for name, place in self.photos.items()
        }


def read_text_file(path: Path) -> TextFile:
    """Read a text file, labelled with its path.

    Raises:
        DataError: the file is too large or cannot be read.
    """
    try:
        return TextFile(str(path), read_text_bytes(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _content_of_member(place: Packed, label: str) -> bytes:
    try:
        with zipfile.ZipFile(place.archive) as archive:
            require_within(place.member.file_size)
            with archive.open(place.member) as file:
                content = file.read(MAX_TEXT_BYTES + 1)  # the size may be false
            require_within(len(content))
            return content
    except (*DAMAGED_ARCHIVE, OSError) as error:
        raise DataError(f"{label}: cannot be unpacked: {one_line(error)}") from None
