"""Find the photos and texts of a data folder and its zip archives; unpack photos."""

import errno
import fnmatch
import itertools
import logging
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from data_prep.disk import format_bytes, require_space
from data_prep.preparation import Problem, Problems, printable
from show_attend_tell.data.preprocessing import is_photo
from show_attend_tell.runtime.errors import DataError, one_line
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.folders import is_left_alone, walk_folders
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.untrusted import (
    MAX_TEXT_BYTES,
    ZIP_FAULTS,
    open_zip,
    read_member,
    read_text_bytes,
    reading,
)

PHOTOS = "photos"  # folder of unpacked photos, beside the manifest
_MANIFEST = "manifest.jsonl"  # of a prepared data set
# Bits of an entry's flags, and the methods of compression that zipfile has.
_ENCRYPTED = 1
_UTF_8 = 1 << 11
_METHODS = (
    zipfile.ZIP_STORED,
    zipfile.ZIP_DEFLATED,
    zipfile.ZIP_BZIP2,
    zipfile.ZIP_LZMA,
)
_DEPTH = 4  # levels of folders searched below the data folder
# A bzip2 stream is damaged (no number), the name is too long, the offset is negative.
_FAULTS_OF_ENTRIES = (None, errno.ENAMETOOLONG, errno.EINVAL)
_LOGGER = logging.getLogger(__name__)


class TextFile(NamedTuple):
    """The text of a file, and the name of the file in messages."""

    label: str
    text: str


class Packed(NamedTuple):
    """A file inside a zip archive."""

    archive: Path
    member: zipfile.ZipInfo


def entry_path(member: zipfile.ZipInfo) -> PurePosixPath:
    """Return the path of an archive entry, as ``unzip`` understands it.

    Some programs of Windows separate folders by a backslash. Some of macOS write UTF-8
    without the flag that says so, which zipfile decodes as the old code page 437.
    """
    return PurePosixPath(_entry_name(member))


def _entry_name(member: zipfile.ZipInfo) -> str:
    name = member.filename.replace("\\", "/")
    if name.isascii() or member.flag_bits & _UTF_8:
        return name
    try:
        return name.encode("cp437").decode("utf-8")
    except UnicodeError:
        return name


def _fault_of_entry(member: zipfile.ZipInfo) -> str:
    """Return why no entry of this kind can be read, or an empty text.

    Windows Explorer uses Deflate64 for files above 2 GB.
    """
    if member.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if member.compress_type in _METHODS:
        return ""
    # typeshed lacks compressor_names
    names: dict[int, str] = vars(zipfile)["compressor_names"]
    method = names.get(member.compress_type, "unknown")
    return f"uses {method.capitalize()} (method {member.compress_type})"


def _unreadable(packed: Packed) -> DataError:
    return DataError(
        f"{packed.archive}: {printable(packed.member.filename)} "
        f"{_fault_of_entry(packed.member)}, which cannot be read here; unpack the "
        "archive yourself, for example with 7-Zip, and move it out of the folder"
    )


def _require_readable_archives(entries: Iterable[Packed]) -> None:
    """Raise a DataError if no entry of an archive can be read; one may be damaged."""
    for _, of_archive in itertools.groupby(entries, lambda packed: packed.archive):
        first, *others = of_archive
        if all(_fault_of_entry(packed.member) for packed in (first, *others)):
            raise _unreadable(first)


def is_safe(member: zipfile.ZipInfo) -> bool:
    """Return whether an archive entry is a plain file inside its folder."""
    name = _entry_name(member)
    # A colon belongs to a drive or a stream of Windows.
    outside = name.startswith("/") or ".." in name.split("/") or ":" in name
    # Unix keeps a file's mode in the upper half of the attributes.
    link = stat.S_ISLNK(member.external_attr >> 16)
    return bool(name) and not (outside or link or "\0" in name)


def find_files(folder: Path, leave_out: Path, problems: Problems) -> list[Path]:
    """Return every file below a folder, sorted, shallow files first.

    Folders below the fourth level are ignored, and what
    :func:`~show_attend_tell.runtime.folders.walk_folders` leaves alone.

    Args:
        folder: the folder to search.
        leave_out: the folder of the prepared data, which is not entered. Neither are
            the other data sets that are prepared beside it.
        problems: receives broken links, unreadable folders, pipes and devices.

    Raises:
        OSError: the folder itself cannot be read.
    """
    files: list[Path] = []
    # The folder may hold all prepared data sets, as the current folder does. Photos
    # that were unpacked for one of them are not the user's, and may be deleted with it.
    manifests = leave_out.parent.glob(f"*/{_MANIFEST}")
    prepared = [leave_out, *(manifest.parent for manifest in manifests)]
    for place, entries, error in walk_folders(folder, _DEPTH, prepared):
        if error is not None:
            if Path(place) == folder:
                raise error
            problems.add(Problem.UNREADABLE_FOLDER, f"{place}: {error.strerror}")
        for entry in entries:
            path = Path(entry.path)
            if os.path.isfile(path):  # Path.is_file raises for a link that loops
                files.append(path)
            else:
                broken = path.is_symlink() and not os.path.exists(path)
                problems.add(
                    Problem.BROKEN_LINK if broken else Problem.SPECIAL_FILE, str(path)
                )
    return sorted(files, key=lambda path: (len(path.parts), path))


def visible_members(path: Path, problems: Problems) -> Iterator[Packed]:
    """Yield the files of an archive that are not hidden, nor a system's.

    Args:
        path: the archive.
        problems: receives unsafe entries.

    Raises:
        DataError: the archive is damaged.
    """
    with (
        reading(path, DataError, "download the archive again"),
        open_zip(path) as archive,
    ):
        members = archive.infolist()
    for member in members:
        name = _entry_name(member)
        if not is_safe(member):
            problems.add(Problem.UNSAFE_ENTRY, f"{path.name}: {member.filename!r}")
        elif name.endswith("/") or any(map(is_left_alone, name.split("/"))):
            continue
        else:
            yield Packed(path, member)


class DataFolder:
    """Index of the photos and text files below the user's data folder.

    Args:
        folder: the data folder.
        prepared: the folder of the prepared data, which is not entered; see
            :func:`find_files`.

    Attributes:
        folder: the data folder, absolute.
        photos: file name -> path of the photo, after unpacking; photos that are not in
            an archive are preferred.
        photo_files: paths of all photos outside archives.
        found_twice: names of photos in two folders; the first is used.
        problems: unsafe archive entries, broken links, unreadable folders, pipes and
            devices; readers add theirs.

    Raises:
        DataError: the folder is absent or an archive is damaged.
    """

    def __init__(self, folder: Path, prepared: Path):
        if not folder.is_dir():
            raise DataError(
                f"{folder}: no such folder; name the folder that holds the photos "
                "and captions"
            )
        self.folder = folder.absolute()
        self._unpacked = prepared / PHOTOS
        self.problems = Problems()
        self.found_twice: set[str] = set()
        self.photos: dict[str, Path] = {}
        self.photo_files: list[Path] = []
        self._packed: dict[str, Packed] = {}  # photos
        self._texts: dict[str, Path | Packed] = {}
        self._ignored_texts: dict[str, Path] = {}  # one of the same name is read
        with reading(folder, DataError, "make it readable, or name another folder"):
            files = find_files(self.folder, prepared, self.problems)
        archives = [path for path in files if path.suffix.lower() == ".zip"]
        # Files come before those of deeper folders, so the first of a name is used.
        for path in files:
            if is_photo(path):
                self.photo_files.append(path)
                if self.photos.setdefault(path.name, path) != path:
                    self.found_twice.add(path.name)
            elif self._texts.setdefault(path.name, path) != path:
                self._ignored_texts[path.name] = path
        for path in archives:  # later than all files, which are preferred
            for packed in visible_members(path, self.problems):
                name = entry_path(packed.member).name
                if not is_photo(name):
                    self._texts.setdefault(name, packed)
                elif name in self._packed:
                    self.found_twice.add(name)
                elif name not in self.photos:
                    self._packed[name] = packed
                    self.photos[name] = self._unpacked / name

    def text_names(self, pattern: str) -> list[str]:
        """Return the names of text files that match a pattern, such as ``*.json``."""
        return sorted(fnmatch.filter(self._texts, pattern))

    def text(self, *names: str) -> TextFile | None:
        """Return the text file with the first of the names that exists, or None.

        A note names another file of the same name, outside archives, that is not read.

        Args:
            names: file names, the preferred one first.

        Raises:
            DataError: the file cannot be read, or is not UTF-8.
        """
        name = next((name for name in names if name in self._texts), None)
        if name is None:
            return None
        # Taken out, so that the note is written once, however often the file is read.
        if ignored := self._ignored_texts.pop(name, None):
            self.problems.notes.append(
                f"two files of the name {name}: {self._texts[name]} is read, {ignored} "
                "is not"
            )
        return read_text(self._texts[name])

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

    def unpack(self, paths: Iterable[Path], progress: bool = False) -> set[Path]:
        """Unpack photos, but those whose file has the content of the entry already.

        Only the file name of an entry is used, so no entry can leave the folder.
        Damaged entries are not written and become problems.

        Args:
            paths: paths of photos; photos outside archives are ignored.
            progress: whether to show a progress bar.

        Returns:
            The paths of damaged entries.

        Raises:
            DataError: the disk is full or cannot be written.
        """
        damaged = set()
        names = {path.name for path in paths if path.parent == self._unpacked}
        wanted = {name: p for name, p in self._packed.items() if name in names}
        present = self._unpacked_already(wanted, progress)
        missing = {name: p for name, p in wanted.items() if name not in present}
        _require_readable_archives(missing.values())
        size = sum(packed.member.file_size for packed in missing.values())
        require_space(size, self._unpacked, "unpacked photos", DataError)
        if missing:
            _LOGGER.info("unpacking %d photos, %s", len(missing), format_bytes(size))
        # The entries of an archive follow each other, as they do in `_packed`.
        by_archive = itertools.groupby(missing.items(), lambda item: item[1].archive)
        for path, group in by_archive:
            entries = list(group)
            title = f"unpacking {path.name}"
            bar = progress_bar(len(entries), "photo", title, shown=progress)
            try:
                with bar, open_zip(path) as archive:
                    for name, packed in entries:
                        target = self._unpacked / name
                        fault = _unpack_entry(archive, packed.member, target)
                        if fault:
                            _LOGGER.warning("%s: %s: %s", path, printable(name), fault)
                            self.problems.add(
                                Problem.DAMAGED_ENTRY, f"{path.name}: {name}"
                            )
                            damaged.add(target)
                        bar.update()
            except (OSError, ValueError) as error:
                raise DataError(
                    f"{path}: cannot be unpacked into {self._unpacked}: "
                    f"{one_line(error)}"
                ) from None
        return damaged

    def _unpacked_already(
        self, wanted: Mapping[str, Packed], progress: bool
    ) -> set[str]:
        """Return the names of the unpacked photos with the content of their entries.

        Another archive may hold a photo of the same name and size.
        """
        if not self._unpacked.is_dir():
            return set()
        with os.scandir(self._unpacked) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
        # Only files of the right size are read.
        complete = [
            name
            for name, packed in wanted.items()
            if sizes.get(name) == packed.member.file_size
        ]
        title = "comparing unpacked photos"
        with progress_bar(len(complete), "photo", title, shown=progress) as bar:
            present = set()
            for name in complete:
                if _crc_of(self._unpacked / name) == wanted[name].member.CRC:
                    present.add(name)
                bar.update()
        return present


def _crc_of(path: Path) -> int | None:
    """Return the CRC-32 of a file, None if it cannot be read."""
    try:
        return zlib.crc32(path.read_bytes())
    except OSError:
        return None


def _unpack_entry(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path
) -> str | None:
    """Unpack a photo atomically; return the fault of a damaged entry, or None."""
    try:
        with (
            archive.open(member) as packed,
            atomic_path(target) as temporary,
            temporary.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file)
    except (OSError, ValueError, *ZIP_FAULTS) as error:
        # Other OSErrors are faults of the disk, which end the preparation.
        if isinstance(error, OSError) and error.errno not in _FAULTS_OF_ENTRIES:
            raise
        return one_line(error)
    return None


def read_text(place: Path | Packed) -> TextFile:
    """Read a text file, labelled with its path.

    Raises:
        DataError: the file is too large, cannot be read, or is not UTF-8.
    """
    label = str(place)
    if isinstance(place, Packed):
        if _fault_of_entry(place.member):
            raise _unreadable(place)
        label = f"{place.archive}:{place.member.filename}"
    with reading(label, DataError, "convert it to UTF-8 text, or get it again"):
        if isinstance(place, Packed):
            with open_zip(place.archive) as archive:
                content = read_member(archive, place.member.filename, MAX_TEXT_BYTES)
        else:
            content = read_text_bytes(place)
        return TextFile(label, content.decode("utf-8-sig"))
