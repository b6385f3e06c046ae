"""Write captions or words as JSON Lines that survive a killed process.

The rows of a batch are appended in one write; a row that a killed process left
incomplete is removed when the file is opened again. A row knows its photo again from
any folder, and notices that another photo has replaced it.
"""

import contextlib
import dataclasses
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

from show_attend_tell.inference.photos import describe_file, photo_key
from show_attend_tell.inference.result import Caption
from show_attend_tell.runtime.errors import CaptionError
from show_attend_tell.runtime.files import atomic_path, locked

Row: TypeAlias = Mapping[str, Any]  # of a result, for JSON

# A path may contain bytes that are not UTF-8; this encoding restores them.
ENCODING = {"encoding": "utf-8", "errors": "surrogateescape"}

_FIRST_KEY = b'{"path": '


def text(value: object) -> str:
    """Return a text that can be written again, or raise TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode(**ENCODING)
    return value


def finite(value: object) -> float:
    """Return a finite number, or raise TypeError or OverflowError."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(value)
    return float(value)


def _finite_or_none(value: object) -> float | None:
    return None if value is None else finite(value)


def _tags_or_none(value: object) -> list[dict[str, Any]] | None:
    """Return the tags of a row, None for a row without any."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise TypeError(value)
    return [
        {"name": text(tag.get("name")), "confidence": finite(tag.get("confidence"))}
        for tag in value
    ]


# The keys of a caption's row, and the function that checks the value of each. The
# confidence is null without a calibration, and tags are absent unless asked for.
FIELDS = {
    "path": text,
    "caption": text,
    "log_prob": finite,
    "score": finite,
    "made_by": text,
    "confidence": _finite_or_none,
}
TAGS = "tags"  # a further key
_OPTIONAL = {"folder": text, TAGS: _tags_or_none}


class Journal:
    """An open JSON Lines file of results, locked; a context manager.

    An error in its body leaves no file that has no rows and was absent before.

    Beside its fields a row has ``photo``: size, time of the last change and digest of
    the file, and ``folder`` if its path is relative: the folder that it starts from,
    seen from the folder of the journal.

    Attributes:
        path: path of the file.
        made_by: the model and the settings of all rows.
        history: all rows, including those of photos that were replaced since.
    """

    def __init__(
        self,
        path: str | Path,
        made_by: str,
        fields: Mapping[str, Callable[[object], Any]] = FIELDS,
        noun: str = "captions",
    ):
        """Lock and open a file, and read its rows.

        Args:
            path: see the class.
            made_by: see the class.
            fields: key -> function that returns the checked value; ``path`` and
                ``made_by`` are among the keys.
            noun: what the rows have, in an error.

        Raises:
            CaptionError: another process writes the file, or it contains something
                else, or results made with another model or other settings.
            OSError: the file cannot be read or written.
        """
        self.path = Path(path)
        self.made_by = made_by
        self._fields = fields
        self._noun = noun
        busy = CaptionError(
            f"{self.path}: another process is writing it; wait, or name another file"
        )
        # A file that is refused releases the lock; one that opens keeps both until
        # __exit__.
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(f"{self.path}.lock", busy))
            # Before `_open` makes the file.
            self._is_new = not os.path.lexists(self.path)
            self.history, self._file = self._open()
            stack.enter_context(self._file)
            self._rows = self._latest()
            self._resources = stack.pop_all()  # the lock and the file
        # Answers of __contains__: a run asks several times about a photo, and comparing
        # its digest reads it.
        self._unchanged: dict[str, bool] = {}
        self._described: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self._resources:  # the lock is held until the file is removed
            self._file.close()
            if kind is not None and self._is_new and not self._rows:
                with contextlib.suppress(OSError):
                    self.path.unlink()

    @property
    def rows(self) -> list[Row]:
        """The latest row of each photo, those already present first."""
        return list(self._rows.values())

    def location(self, row: Row) -> Path:
        """Return the path of a row's photo, seen from the working folder."""
        path = row["path"]
        if "folder" not in row or os.path.isabs(path):
            return Path(path)
        # Both the journal and the working folder may have moved since. From the folder
        # of the run the path stays as the user wrote it, links and all.
        found = os.path.join(self._folder(), row["folder"], path)
        if os.path.normpath(found) == os.path.abspath(path):
            return Path(path)
        try:
            return Path(os.path.relpath(found))
        except ValueError:  # on another drive of Windows
            return Path(os.path.normpath(found))

    def row(self, photo: str | os.PathLike[str]) -> Row | None:
        """Return the row of a photo, by whatever path it is named, or None."""
        return self._rows.get(photo_key(photo))

    def __contains__(self, photo: object) -> bool:
        """Return whether a photo has a row, and has not been replaced since."""
        # A Failure is asked about too; its text is the path of no row.
        key = photo_key(str(photo))
        if key not in self._rows:
            return False
        if key not in self._unchanged:
            self._unchanged[key] = _is_unchanged(Path(key), self._rows[key])
        return self._unchanged[key]

    def describe(self, photo: str | os.PathLike[str]) -> None:
        """Describe a photo before it is read; its next row has this description.

        A photo that is replaced while it is captioned then differs from its row.
        """
        identity: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            identity["photo"] = describe_file(Path(photo))
        self._described[photo_key(photo)] = identity

    def append(self, rows: Iterable[Row]) -> list[Row]:
        """Append rows, ``path`` first; all of them or none.

        A photo that was not described before is described now.

        Returns:
            The rows with what recognises their photos.

        Raises:
            CaptionError: the disk is full; the file ends with the row before these.
        """
        rows = [self._identified(row) for row in rows]
        rest = memoryview("".join(map(row_line, rows)).encode(**ENCODING))
        # The end of the last whole row, to which a failed write is cut back.
        size = self._file.tell()
        try:
            while rest:  # an unbuffered file may write a part
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._file.truncate(size)
            raise CaptionError(
                f"{self.path}: cannot be written: {error.strerror}; free space and "
                "run the same command again"
            ) from None
        self.history.extend(rows)
        for row in rows:
            key = photo_key(row["path"])
            self._rows[key] = row
            # A photo is captioned once in a run; the next run compares it with its row.
            self._unchanged[key] = True
        return rows

    def outdated(self, photos: Iterable[str | os.PathLike[str]]) -> list[Row]:
        """Return the rows of those photos that have been replaced since."""
        rows = [self.row(photo) for photo in photos if photo not in self]
        return [row for row in rows if row is not None]

    def remove(self, rows: Iterable[Row]) -> None:
        """Remove rows, and those of photos that were replaced, atomically.

        Raises:
            OSError: the file cannot be written; it stays as it was.
        """
        removed = {photo_key(self.location(row)) for row in rows}
        kept = {key: row for key, row in self._rows.items() if key not in removed}
        content = "".join(map(row_line, kept.values())).encode(**ENCODING)
        # It would be the handle of the replaced file, and Windows replaces no open
        # file.
        self._file.close()
        try:
            with atomic_path(self.path) as temporary:
                temporary.write_bytes(content)
            self._rows = kept
            self.history = list(kept.values())
        # Also after a failure, which leaves the old file in its place.
        finally:
            file = open(self.path, "ab", buffering=0)
            self._file = self._resources.enter_context(file)

    def _folder(self) -> str:
        return os.path.realpath(self.path.absolute().parent)

    def _identified(self, row: Row) -> Row:
        """Return a row with what recognises its photo, if it is a file."""
        key = photo_key(row["path"])
        if key not in self._described:
            self.describe(row["path"])
        identity = self._described.pop(key)
        if not os.path.isabs(row["path"]):
            with contextlib.suppress(ValueError):  # on another drive of Windows
                folder = os.path.relpath(os.path.realpath(os.curdir), self._folder())
                identity["folder"] = folder.replace(os.sep, "/")
        return {**row, **identity}

    def _open(self) -> tuple[list[Row], io.FileIO]:
        """Read the complete rows, remove an incomplete one, and open for appending."""
        if self.path.exists() and not self.path.is_file():
            raise self._malformed("a folder, or no regular file")
        content = self.path.read_bytes() if self.path.exists() else b""
        complete = content.rfind(b"\n") + 1
        lacks_end = _is_whole(content[complete:])  # an editor may drop the line feed
        if lacks_end:
            content += b"\n"
            complete = len(content)
        # Not splitlines: JSON Lines end in a line feed alone, and a path may have
        # U+2028.
        lines = content[:complete].decode(**ENCODING).split("\n")[:-1]
        rows = [self._parse(line) for line in lines]
        # Without a whole row, only the beginning of a first row of this program may be
        # cut off. Everything else belongs to another program and stays.
        if not rows and content[: len(_FIRST_KEY)] != _FIRST_KEY[: len(content)]:
            raise self._malformed(f"{content[:40]!r}")
        others = sorted({row["made_by"] for row in rows} - {self.made_by})
        if others:
            other = others[0] if others[0].isprintable() else repr(others[0])
            raise CaptionError(
                f"{self.path}: its {self._noun} were made by {other[:200]}, and "
                f"not by {self.made_by}; name another file, or remove this one"
            )
        # Unbuffered, so that a row is in the file as soon as `append` returns.
        file = open(self.path, "ab", buffering=0)
        if lacks_end:
            file.write(b"\n")
        file.truncate(complete)
        file.seek(complete)
        return rows, file

    def _latest(self) -> dict[str, Row]:
        """Return the latest row of each photo, by its key."""
        rows: dict[str, Row] = {}
        for row in self.history:
            try:
                key = photo_key(self.location(row))
            except ValueError:  # a folder with a null byte, which no photo has
                raise self._malformed(f"the path {row['path'][:60]!r}") from None
            rows[key] = row
        return rows

    def _parse(self, line: str) -> Row:
        """Return the row of a line, its values checked."""
        try:
            row = json.loads(line)
            checked = {key: check(row.get(key)) for key, check in self._fields.items()}
            for key in _OPTIONAL.keys() & row.keys():
                checked[key] = _OPTIONAL[key](row[key])
        # An AttributeError is for a line that is no object, an OverflowError for an
        # integer beyond any float, a RecursionError for deep JSON.
        except (AttributeError, TypeError, ValueError, OverflowError, RecursionError):
            raise self._malformed(f"the line {line[:60]!r}") from None
        return {**row, **checked}

    def _malformed(self, received: str) -> CaptionError:
        # A confidence may be absent.
        required = (k for k, f in self._fields.items() if f is not _finite_or_none)
        return CaptionError(
            f"{self.path}: must be absent, or JSON Lines of this program with "
            f"{', '.join(required)}. Received: {received}; name another file"
        )


def caption_row(caption: Caption, made_by: str) -> Row:
    """Return the row of a caption, with :data:`FIELDS`, and tags if it has them."""
    row = {
        "path": str(caption.path),
        "caption": caption.text,
        "log_prob": round(caption.log_prob, 6),
        "score": round(caption.score, 6),
        "made_by": made_by,
        "confidence": caption.confidence,
    }
    if caption.tags is not None:
        row[TAGS] = [dataclasses.asdict(tag) for tag in caption.tags]
    return row


def tag_names(row: Row) -> list[str]:
    """Return the names of a row's tags, none if they were not asked for."""
    return [tag["name"] for tag in row.get(TAGS) or ()]


def row_line(row: Row) -> str:
    """Return the line of a row, with its line feed."""
    # Only a path that cannot be printed is escaped; other alphabets stay readable.
    return json.dumps(row, ensure_ascii=not row["path"].isprintable()) + "\n"


def _is_whole(line: bytes) -> bool:
    """Return whether the last line, without its line feed, is a whole object."""
    try:
        return isinstance(json.loads(line.decode(**ENCODING)), dict)
    except (ValueError, RecursionError):
        return False


def _is_unchanged(photo: Path, row: Row) -> bool:
    """Return whether a photo is the one that a row describes.

    The content is read only if the time of the last change differs. A photo that is
    absent, and one of a row without a description, count as unchanged.
    """
    known = row.get("photo")
    if not isinstance(known, dict):
        return True
    try:
        # The size tells most replaced photos apart without reading them.
        found = photo.stat()
        if found.st_size != known.get("bytes"):
            return False
        if found.st_mtime_ns == known.get("modified"):
            return True
        # A copy or a touched file has another time and the same content.
        return describe_file(photo)["sha256"] == known.get("sha256")
    except (OSError, ValueError):
        return True
