"""Write captions or words as JSON Lines that survive a killed process, and as CSV.

The rows of a batch are appended in one write; a row that a killed process left
incomplete is removed when the file is opened again.
"""

import contextlib
import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

from show_attend_tell.inference.result import DOUBTFUL, Caption, as_sentence, is_below
from show_attend_tell.inference.xmp import creator_tool
from show_attend_tell.runtime.errors import OutputFileError
from show_attend_tell.runtime.files import locked

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


# The keys of a caption's row, and the function that checks the value of each. Rows of
# version 0.1 have no confidence.
FIELDS = {
    "path": text,
    "caption": text,
    "log_prob": finite,
    "score": finite,
    "made_by": text,
    "confidence": _finite_or_none,
}


class Journal:
    """An open JSON Lines file of results, locked; a context manager.

    Attributes:
        path: path of the file.
        made_by: the model and the settings of all rows.
        rows: all rows, those already present first.
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
            OutputFileError: another process writes the file, or it contains something
                else, or results made with another model or other settings.
            OSError: the file cannot be read or written.
        """
        self.path = Path(path)
        self.made_by = made_by
        self._fields = fields
        self._noun = noun
        taken = OutputFileError(
            f"{self.path}: another process is writing it; wait, or name another file"
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(f"{self.path}.lock", taken))
            self.rows = self._open()
            stack.enter_context(self._file)
            self._opened = stack.pop_all()
        self._present = {os.path.abspath(row["path"]) for row in self.rows}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def __contains__(self, photo: object) -> bool:
        """Return whether a photo has a row, by whatever path it is named."""
        return os.path.abspath(str(photo)) in self._present

    def append(self, rows: Iterable[Row]) -> None:
        """Append rows of photos without a row, ``path`` first; all of them or none.

        Raises:
            OutputFileError: the disk is full; the file ends with the row before these.
        """
        rows = list(rows)
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

    def _open(self) -> list[Row]:
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
            other = others[0] if others[0].isprintable() else repr(others[0])
            raise OutputFileError(
                f"{self.path}: its {self._noun} were made by {other[:200]}, and "
                f"not by {self.made_by}; name another file, or remove this one"
            )
        self._file = open(self.path, "ab", buffering=0)
        self._file.truncate(complete)
        self._file.seek(complete)
        return rows

    def _parse(self, line: str) -> Row:
        """Return the row of a line, its values checked."""
        try:
            row = json.loads(line)
            checked = {key: check(row.get(key)) for key, check in self._fields.items()}
        except (AttributeError, TypeError, ValueError, OverflowError, RecursionError):
            raise self._malformed(f"the line {line[:60]!r}") from None
        return {**row, **checked}

    def _malformed(self, received: str) -> OutputFileError:
        required = (k for k, f in self._fields.items() if f is not _finite_or_none)
        return OutputFileError(
            f"{self.path}: must be absent, or JSON Lines of this program with "
            f"{', '.join(required)}. Received: {received}; name another file"
        )


def caption_row(caption: Caption, made_by: str) -> Row:
    """Return the row of a caption, with :data:`FIELDS`."""
    return {
        "path": str(caption.path),
        "caption": caption.text,
        "log_prob": round(caption.log_prob, 6),
        "score": round(caption.score, 6),
        "made_by": made_by,
        "confidence": caption.confidence,
    }


def row_line(row: Row) -> str:
    """Return the line of a row, with its line feed."""
    # Only a path that cannot be printed is escaped; other alphabets stay readable.
    return json.dumps(row, ensure_ascii=not row["path"].isprintable()) + "\n"


# Columns that `exiftool -csv=FILE PHOTO...` writes into photos.
_EXIFTOOL_COLUMNS = (
    "SourceFile",
    "XMP-dc:Description",
    "XMP-iptcCore:AltTextAccessibility",
    "XMP-xmp:CreatorTool",
)


def table(
    rows: Iterable[Row], exiftool: bool = False, least: float = DOUBTFUL
) -> bytes:
    """Return rows as CSV, after one line of column names.

    Args:
        rows: rows with :data:`FIELDS`, which are its columns.
        exiftool: whether to write the columns of exiftool in place of these.
        least: lowest confidence of a caption that exiftool gets.
    """
    content = io.StringIO()
    plain = csv.writer(content, lineterminator="\n")
    # Python 3.11 writes a carriage return without quotes, and cannot read it then.
    quoted = csv.writer(content, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(_EXIFTOOL_COLUMNS if exiftool else FIELDS)
    for row in rows:
        values = [row.get(field) for field in FIELDS]
        if exiftool:
            if is_below(row.get("confidence"), least):
                continue
            sentence = as_sentence(row["caption"])
            values = [row["path"], sentence, sentence, creator_tool(row["made_by"])]
        returns = any("\r" in str(value) for value in values)
        (quoted if returns else plain).writerow(values)
    return content.getvalue().encode(**ENCODING)


def require_replaceable(
    path: Path, rows: Sequence[Row], least: float = DOUBTFUL
) -> None:
    """Raise unless a :func:`table` of these rows loses no line of the file.

    An earlier run wrote the first of these rows. A CSV file differs if another program
    wrote it, or version 0.1, which kept no journal beside it.

    Raises:
        OutputFileError: the file has other lines.
        OSError: the file cannot be read.
    """
    if not path.exists():
        return
    if path.is_file():  # a pipe or a device may block or have no end
        content = path.read_bytes()
        lows = (least, DOUBTFUL, 0)  # an earlier run may have had another
        tables = (table(rows, x, low) for x in (False, True) for low in lows)
        if any(rewritten.startswith(content) for rewritten in tables):
            return
    journal = path.with_suffix(".jsonl").name
    raise OutputFileError(
        f"{path}: must be absent, or made from {journal} beside it. Received: lines "
        f"that are not in {journal}; name another file, or move this one"
    )
