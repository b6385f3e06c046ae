"""Write the rows of captions as a table in CSV, also in the columns of exiftool."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from show_attend_tell.inference.journal import ENCODING, FIELDS, TAGS, Row, tag_names
from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.result import (
    DOUBTFUL,
    as_sentence,
    confidence_word,
    is_below,
)
from show_attend_tell.inference.xmp import creator_tool
from show_attend_tell.runtime.errors import CaptionError

_COLUMNS = (
    "path",
    "sentence",
    "confidence",
    "confidence_word",
    "caption",
    "log_prob",
    "score",
    "made_by",
    "error",
)
_COLUMNS_WITH_TAGS = (*_COLUMNS[:4], "tags", *_COLUMNS[4:])
# Columns that `exiftool -csv=FILE PHOTO...` writes into photos.
_EXIFTOOL_COLUMNS = (
    "SourceFile",
    "XMP-dc:Description",
    "XMP-iptcCore:AltTextAccessibility",
    "XMP-xmp:CreatorTool",
)
_EARLIER_COLUMNS = tuple(FIELDS)  # of versions without sentences
_KNOWN = (_COLUMNS, _COLUMNS_WITH_TAGS, _EXIFTOOL_COLUMNS, _EARLIER_COLUMNS)


def table(rows: Iterable[Row], failures: Iterable[Failure] = ()) -> bytes:
    """Return rows as CSV, after one line of column names.

    Rows with tags have their names in a column, with commas between.

    Args:
        rows: rows with ``journal.FIELDS``.
        failures: photos without a caption, which come last, with the reason.
    """
    lines = []
    columns: Sequence[str] = _COLUMNS
    for row in rows:
        if TAGS in row:
            # One row with tags is enough; the others have an empty cell.
            columns = _COLUMNS_WITH_TAGS
        lines.append(_line(row))
    for failure in failures:
        path = str(failure.path)
        # The path has a column of its own.
        error = failure.reason.removeprefix(f"{path}: ")
        lines.append({"path": path, "error": error})
    return write_csv(columns, lines)


def exiftool_table(
    rows: Iterable[Row],
    minimum: float = DOUBTFUL,
    locate: Callable[[Row], Path] = lambda row: Path(row["path"]),
) -> bytes:
    """Return rows in the columns of exiftool.

    Args:
        rows: rows with ``journal.FIELDS``.
        minimum: lowest confidence of a caption that exiftool gets.
        locate: returns the path of a row's photo from the working folder.
    """
    lines = []
    for row in rows:
        if not is_below(row.get("confidence"), minimum):
            lines.append(_exiftool_line(row, locate(row)))
    return write_csv(_EXIFTOOL_COLUMNS, lines)


def _line(row: Row) -> dict[str, Any]:
    """Return the values of a row in :data:`_COLUMNS`, and others."""
    return {
        **row,
        "sentence": as_sentence(row["caption"]),
        "confidence_word": confidence_word(row.get("confidence")),
        "tags": ", ".join(tag_names(row)),
    }


def _exiftool_line(row: Row, photo: Path) -> dict[str, Any]:
    """Return the values of a row in the columns of exiftool."""
    sentence = as_sentence(row["caption"])
    values = (str(photo), sentence, sentence, creator_tool(row["made_by"]))
    return dict(zip(_EXIFTOOL_COLUMNS, values, strict=True))


def write_csv(columns: Sequence[str], lines: Iterable[Row]) -> bytes:
    """Return lines as CSV that every reader of CSV reads back, after their columns."""
    content = io.StringIO()
    plain = csv.writer(content, lineterminator="\n")
    # Python 3.11 writes a carriage return without quotes, and cannot read it then.
    quoted = csv.writer(content, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(columns)
    for line in lines:
        values = [line.get(column) for column in columns]
        has_return = any("\r" in str(value) for value in values)
        writer = quoted if has_return else plain
        writer.writerow(values)
    return content.getvalue().encode(**ENCODING)


def require_replaceable(path: Path, rows: Sequence[Row]) -> None:
    """Raise unless every line of a table is of one of these rows.

    An earlier run wrote it from some of these rows, perhaps in other columns. A CSV
    file differs if another program wrote it, or a person changed a value in it; a
    number may have lost digits in a spreadsheet.

    Raises:
        CaptionError: the file has other lines.
        OSError: the file cannot be read.
    """
    if not path.exists():
        return
    if path.is_file() and _is_made_from(path, rows):  # a pipe or a device may block
        return
    journal = path.with_suffix(".jsonl").name
    raise CaptionError(
        f"{path}: must be absent, or made from {journal} beside it. Received: lines "
        f"that are not in {journal}, or were changed; name another file, or move this "
        "one"
    )


def _is_made_from(path: Path, rows: Sequence[Row]) -> bool:
    """Return whether each line has the values of a row, or is of a failure."""
    # By name, so that each line is compared with few rows.
    named: dict[str, list[Row]] = {}
    for row in rows:
        named.setdefault(Path(row["path"]).name, []).append(row)
    try:
        content = path.read_bytes().decode(**ENCODING)
        with io.StringIO(content, newline="") as file:
            lines = csv.DictReader(file)
            columns = tuple(lines.fieldnames or ())
            if columns not in _KNOWN:
                return False
            return all(
                _is_failure(line)
                or any(
                    _is_of_row(line, columns, row)
                    for row in named.get(Path(line[columns[0]]).name, ())
                )
                for line in lines
            )
    except (csv.Error, TypeError, ValueError):
        return False


def _is_failure(line: Mapping[str, str]) -> bool:
    """Return whether a line has an error, and nothing else but its path."""
    filled = {column for column, value in line.items() if value}
    return filled == {"path", "error"}


def _is_of_row(line: Mapping[str, str], columns: Sequence[str], row: Row) -> bool:
    """Return whether a line has the values of a row in these columns, and no others."""
    if columns == _EXIFTOOL_COLUMNS:
        # Its paths start from the folder of the run; the name is compared already.
        expected = _exiftool_line(row, Path(line[columns[0]]))
    else:
        expected = _line(row)
    # A line that is too long has a further key, None.
    return line.keys() == set(columns) and all(
        _is_same(line[column], expected.get(column)) for column in columns
    )


def _is_same(text: str, value: object) -> bool:
    """Return whether a table has this value; the last digits of numbers may differ."""
    if isinstance(value, float) and text:
        return math.isclose(float(text), value, rel_tol=1e-6)
    return text == ("" if value is None else str(value))
