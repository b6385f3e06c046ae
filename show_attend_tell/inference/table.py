"""Write the rows of captions as a table in CSV, also in the columns of exiftool."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
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
# The column with the text of a row, for each set of columns.
_TEXTS = {
    _COLUMNS: "sentence",
    _COLUMNS_WITH_TAGS: "sentence",
    _EXIFTOOL_COLUMNS: "XMP-dc:Description",
    _EARLIER_COLUMNS: "caption",
}


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
        for_people: dict[str, Any] = {
            "sentence": as_sentence(row["caption"]),
            "confidence_word": confidence_word(row.get("confidence")),
        }
        if TAGS in row:
            columns = _COLUMNS_WITH_TAGS
            for_people["tags"] = ", ".join(tag_names(row))
        lines.append({**row, **for_people})
    for failure in failures:
        path = str(failure.path)
        error = failure.reason.removeprefix(f"{path}: ")
        lines.append({"path": path, "error": error})
    return _csv(columns, lines)


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
            sentence = as_sentence(row["caption"])
            tool = creator_tool(row["made_by"])
            values = (str(locate(row)), sentence, sentence, tool)
            lines.append(dict(zip(_EXIFTOOL_COLUMNS, values, strict=True)))
    return _csv(_EXIFTOOL_COLUMNS, lines)


def _csv(columns: Sequence[str], lines: Iterable[Row]) -> bytes:
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
    """Raise unless every caption in a table is among these rows.

    An earlier run wrote it from some of these rows, perhaps in other columns. A CSV
    file differs if another program wrote it, or a person changed a caption in it.

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
        f"that are not in {journal}; name another file, or move this one"
    )


def _is_made_from(path: Path, rows: Sequence[Row]) -> bool:
    """Return whether each line has the name of a row's photo, and its caption."""
    known = set()
    for row in rows:
        name = Path(row["path"]).name
        known.add((name, row["caption"]))
        known.add((name, as_sentence(row["caption"])))
    try:
        content = path.read_bytes().decode(**ENCODING)
        with io.StringIO(content, newline="") as file:
            lines = csv.DictReader(file)
            columns = tuple(lines.fieldnames or ())
            if columns not in _TEXTS:
                return False
            for line in lines:
                name = Path(line[columns[0]]).name
                caption = line[_TEXTS[columns]]
                is_failure = bool(line.get("error")) and not line["caption"]
                if (name, caption) not in known and not is_failure:
                    return False
    except (csv.Error, TypeError, ValueError):
        return False
    return True
