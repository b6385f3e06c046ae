"""Write the captions of a journal as CSV, also with the columns of exiftool."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.inference.journal import ENCODING, FIELDS
from show_attend_tell.inference.metadata.xmp import creator_tool
from show_attend_tell.inference.sentence import as_sentence
from show_attend_tell.runtime.errors import OutputFileError
from show_attend_tell.runtime.files import atomic_path


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
