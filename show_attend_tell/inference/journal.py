"""Write captions or words as JSON Lines that survive a killed process, and as CSV.

The rows of a batch are appended in one write; a row that a killed process left
incomplete is removed when the file is opened again.
"""

import abc
import contextlib
import csv
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from show_attend_tell.inference.result import Caption, as_sentence
from show_attend_tell.inference.xmp import creator_tool
from show_attend_tell.runtime.errors import OutputFileError
from show_attend_tell.runtime.files import atomic_path, locked

FIELDS = ("path", "caption", "log_prob", "score", "made_by", "confidence")
# A path may contain bytes that are not UTF-8; this encoding restores them.
ENCODING = {"encoding": "utf-8", "errors": "surrogateescape"}

_FIRST_KEY = b'{"path": '


class Journal(abc.ABC):
    """An open JSON Lines file of results, locked; a context manager.

    A subclass names the values of its rows, and makes them.

    Attributes:
        texts: keys of texts in a row, ``path`` and ``made_by`` among them.
        numbers: keys of finite numbers.
        noun: what the rows have, in an error.
        path: path of the file.
        made_by: the model and the settings of all rows.
        rows: all rows, those already present first.

    Raises:
        OutputFileError: another process writes the file, or it contains something
            else, or captions made with another model or other settings.
        OSError: the file cannot be read or written.
    """

    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    noun: str

    def __init__(self, path: str | Path, made_by: str):
        self.path, self.made_by = Path(path), made_by
        taken = OutputFileError(
            f"{self.path}: another process is writing it; wait, or name another file"
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(f"{self.path}.lock", taken))
            self.rows = self._open()
            self._lock = stack.pop_all()
        self._present = {os.path.abspath(row["path"]) for row in self.rows}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._file.close()
        finally:
            self._lock.close()

    def __contains__(self, photo: object) -> bool:
        """Return whether a photo has a row, by whatever path it is named."""
        return os.path.abspath(str(photo)) in self._present

    @abc.abstractmethod
    def row_of(self, result: object) -> dict:
        """Return the row of a result, ``path`` first."""

    def append(self, results: Iterable) -> None:
        """Append the rows of results, of photos without a row; all of them or none.

        Raises:
            OutputFileError: the disk is full; the file ends with the row before these.
        """
        rows = list(map(self.row_of, results))
        left = memoryview("".join(map(row_line, rows)).encode(**ENCODING))
        size = self._file.tell()
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._file.truncate(size)
            raise OutputFileError(
                f"{self.path}: cannot be written: {error.strerror}; free space and "
                "run the same command again"
            ) from None
        self.rows.extend(rows)
        self._present.update(os.path.abspath(row["path"]) for row in rows)

    def _open(self) -> list[dict]:
        """Read the complete rows, remove an incomplete one, and open for appending."""
        if self.path.exists() and not self.path.is_file():
            raise self._malformed("a folder, or no regular file")
        content = self.path.read_bytes() if self.path.exists() else b""
        complete = content.rfind(b"\n") + 1
        lines = content[:complete].decode(**ENCODING).split("\n")[:-1]
        rows = [self._parse(line) for line in lines]
        if not rows and content[: len(_FIRST_KEY)] != _FIRST_KEY[: len(content)]:
            raise self._malformed(f"{content[:40]!r}")
        others = sorted({row["made_by"] for row in rows} - {self.made_by})
        if others:
            raise OutputFileError(
                f"{self.path}: its {self.noun} were made by {_shown(others[0])}, and "
                f"not by {self.made_by}; name another file, or remove this one"
            )
        self._file = open(self.path, "ab", buffering=0)
        self._file.truncate(complete)
        self._file.seek(complete)
        return rows

    def _parse(self, line: str) -> dict:
        """Return the row of a line."""
        try:
            return self._checked(json.loads(line))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            raise self._malformed(f"the line {line[:60]!r}") from None

    def _checked(self, row: dict) -> dict:
        """Return a row whose values have their types, or raise an error."""
        kept = {key: _text(row[key]) for key in self.texts}
        return {**row, **kept, **{key: _finite(row[key]) for key in self.numbers}}

    def _malformed(self, received: str) -> OutputFileError:
        return OutputFileError(
            f"{self.path}: must be absent, or JSON Lines of this program with "
            f"{', '.join(self.required)}. Received: {received}; name another file"
        )

    @property
    def required(self) -> tuple[str, ...]:
        """The keys of every row."""
        return *self.texts[:-1], *self.numbers, self.texts[-1]


class CaptionJournal(Journal):
    """An open JSON Lines file of captions, see :class:`Journal`."""

    texts = ("path", "caption", "made_by")
    numbers = ("log_prob", "score")
    noun = "captions"

    def row_of(self, result: Caption) -> dict:
        """Return the row of a caption."""
        return caption_row(result, self.made_by)

    def _checked(self, row: dict) -> dict:
        row = super()._checked(row)
        confidence = row.get("confidence")  # None: unknown, as in earlier versions
        if confidence is not None:
            confidence = _finite(confidence)
        return {**row, "confidence": confidence}


def _text(value: object) -> str:
    """Return a text that can be written again, or raise TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode(**ENCODING)
    return value


def _finite(value: object) -> float:
    """Return a finite number, or raise TypeError, ValueError or OverflowError."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(value)
    return float(value)


def _shown(text: str) -> str:
    """Return a text as one line of at most 200 characters."""
    return (text if text.isprintable() else repr(text))[:200]


def caption_row(caption: Caption, made_by: str) -> dict:
    """Return the row of a caption, with :data:`FIELDS`."""
    return {
        "path": str(caption.path),
        "caption": caption.text,
        "log_prob": round(caption.log_prob, 6),
        "score": round(caption.score, 6),
        "made_by": made_by,
        "confidence": caption.confidence,
    }


def row_line(row: dict) -> str:
    """Return the line of a row, with its line feed."""
    # Only a path that cannot be printed is escaped; other alphabets stay readable.
    return json.dumps(row, ensure_ascii=not row["path"].isprintable()) + "\n"


@dataclass(frozen=True)
class Columns:
    """The columns of a table.

    Attributes:
        names: the first line of the file.
        values: row of the journal -> the values of its line.
    """

    names: tuple[str, ...]
    values: Callable[[Mapping], tuple]


def _exiftool_values(row: Mapping) -> tuple[str, ...]:
    sentence = as_sentence(row["caption"])
    return row["path"], sentence, sentence, creator_tool(row["made_by"])


COLUMNS = Columns(FIELDS, lambda row: tuple(row[field] for field in FIELDS))
# Columns that `exiftool -csv=FILE PHOTO...` writes into photos.
EXIFTOOL_COLUMNS = Columns(
    (
        "SourceFile",
        "XMP-dc:Description",
        "XMP-iptcCore:AltTextAccessibility",
        "XMP-xmp:CreatorTool",
    ),
    _exiftool_values,
)


def write_table(
    path: Path, rows: Iterable[Mapping], columns: Columns = COLUMNS
) -> None:
    """Write rows as CSV atomically, after one line of column names."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", newline="", **ENCODING) as file,
    ):
        plain = csv.writer(file, lineterminator="\n")
        # Python 3.11 writes a carriage return without quotes, and cannot read it then.
        quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        plain.writerow(columns.names)
        for row in rows:
            values = columns.values(row)
            returns = any("\r" in str(value) for value in values)
            (quoted if returns else plain).writerow(values)


def _cells(values: Iterable) -> tuple[str, ...]:
    """Return the texts of values as :mod:`csv` writes them."""
    return tuple("" if value is None else str(value) for value in values)


def require_replaceable(path: Path, rows: Sequence[Mapping]) -> None:
    """Raise unless :func:`write_table` with these rows loses no line of the file.

    A CSV file has other lines if it was made by another program, or by version 0.1,
    which kept no journal beside it.

    Raises:
        OutputFileError: the file has a line that is not among `rows`, or is no CSV.
        OSError: the file cannot be read.
    """
    if not path.exists():
        return
    kept = set()
    for columns in (COLUMNS, EXIFTOOL_COLUMNS):
        lines = {columns.names, *(_cells(columns.values(row)) for row in rows)}
        kept |= lines
        if columns is COLUMNS:  # versions before 0.3 wrote no confidence, the last one
            kept |= {line[:-1] for line in lines}
    journal = path.with_suffix(".jsonl").name
    for line in _lines(path):
        if line is None or tuple(line) not in kept:
            received = "" if line is None else f", {','.join(line)[:60]!r}"
            raise OutputFileError(
                f"{path}: must be absent, or made from {journal} beside it. "
                f"Received: a line that is not in {journal}{received}; name another "
                "file, or move this one"
            )


def _lines(path: Path) -> Iterator[list[str] | None]:
    """Yield the lines of a CSV file, None for one that is not CSV."""
    if not path.is_file():
        yield None  # a folder, or a named pipe, from which reading would block
        return
    with path.open(newline="", **ENCODING) as file:
        try:
            yield from csv.reader(file)
        except csv.Error:
            yield None
