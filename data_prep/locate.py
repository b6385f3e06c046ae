"""Find photos and text files below a folder, unpacked or still in zip archives."""

import os
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from show_attend_tell.data.preprocessing import PHOTO_SUFFIXES
from show_attend_tell.runtime.errors import DataError

_DEPTH = 4  # folders below the data folder that are looked into


@dataclass(frozen=True)
class TextFile:
    """A text file and how to name it in messages."""

    label: str
    content: bytes

    def text(self) -> str:
        """Return the content as text.

        Raises:
            DataError: it is not UTF-8.
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
    """Tell whether an archive entry is a plain file that stays in its folder."""
    name = member.filename.replace("\\", "/")
    outside = name.startswith("/") or ".." in name.split("/") or ":" in name
    link = stat.S_ISLNK(member.external_attr >> 16)
    return not (outside or link or "\0" in name)


def _is_hidden(name: str) -> bool:
    return any(
        part == "__MACOSX" or (part.startswith(".") and part != "..")
        for part in PurePosixPath(name).parts
    )


def walk(folder: Path, leave_out: Path) -> Iterator[Path]:
    """Yield every file below a folder, shallow ones first, in a fixed order.

    Hidden files and folders are passed over, and what lies deeper than four folders.

    Args:
        folder: where to look.
        leave_out: a folder that is not entered.
    """
    leave_out = leave_out.resolve()
    level = [folder]
    for _ in range(_DEPTH + 1):
        deeper = []
        for place in level:
            with os.scandir(place) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.name.startswith(".") or entry.name == "__MACOSX":
                        continue
                    path = place / entry.name
                    if not entry.is_dir():
                        yield path
                    elif path.resolve() != leave_out:
                        deeper.append(path)
        level = deeper


class DataFolder:
    """All that lies below the user's data folder.

    Args:
        folder: the data folder.
        leave_out: a folder that is not looked into: where photos are unpacked to.

    Attributes:
        photos: file name -> where the photo lies, unpacked ones preferred.
        found_twice: names of photos that lie in two places; the first is used.
        unsafe: entries of archives that are left alone.

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
        self.found_twice: set[str] = set()
        self.unsafe: list[str] = []
        self.photos: dict[str, Path | Packed] = {}
        self._texts: dict[str, Path | Packed] = {}
        archives = []
        try:
            for path in walk(self.folder, leave_out):
                if path.suffix.lower() == ".zip":
                    archives.append(path)
                else:
                    self._add(path.name, path)
        except OSError as error:
            raise DataError(f"{folder}: cannot be read: {error}") from None
        for path in archives:
            self._add_archive(path)

    def _add(self, name: str, place: Path | Packed) -> None:
        photo = Path(name).suffix.lower() in PHOTO_SUFFIXES
        found = self.photos if photo else self._texts
        earlier = found.setdefault(name, place)
        if photo and earlier is not place and type(earlier) is type(place):
            self.found_twice.add(name)

    def _add_archive(self, path: Path) -> None:
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(
                f"{path}: not a whole zip archive ({error}); fetch it again"
            ) from None
        for member in members:
            if not is_safe(member):
                self.unsafe.append(f"{path.name}: {member.filename!r}")
            elif not member.is_dir() and not _is_hidden(member.filename):
                self._add(PurePosixPath(member.filename).name, Packed(path, member))

    def text(self, *names: str) -> TextFile | None:
        """Return the first of some text files that is there, or None.

        Args:
            names: file names, the preferred one first.

        Raises:
            DataError: the file is there and cannot be read.
        """
        for name in names:
            place = self._texts.get(name)
            if place is None:
                continue
            if isinstance(place, Path):
                return TextFile(str(place), _content_of_file(place))
            label = f"{place.archive}:{place.member.filename}"
            return TextFile(label, _content_of_member(place, label))
        return None

    def require_text(self, *names: str) -> TextFile:
        """Return the first of some text files that is there.

        Raises:
            DataError: none is, or it cannot be read.
        """
        found = self.text(*names)
        if found is None:
            raise DataError(
                f"{self.folder}: {' or '.join(names)} must be in this folder, below "
                "it or in a zip archive there; add the file or name another folder"
            )
        return found

    def places(self, photo_folder: Path) -> dict[str, Path]:
        """Return where every photo lies, or will lie once it is unpacked.

        Args:
            photo_folder: where packed photos will be unpacked to.

        Raises:
            DataError: there are none.
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


def _content_of_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _content_of_member(place: Packed, label: str) -> bytes:
    try:
        with zipfile.ZipFile(place.archive) as archive:
            return archive.read(place.member)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{label}: cannot be unpacked: {error}") from None
