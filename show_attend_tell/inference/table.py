"""Write the captions of a journal as CSV."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from show_attend_tell.inference.journal import ENCODING, FIELDS
from show_attend_tell.runtime.errors import OutputFileError
from show_attend_tell.runtime.files import atomic_path


def write_table(path: Path, rows: Iterable[Mapping]) -> None:
    """Write rows as CSV atomically, after one line of column names."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", newline="", **ENCODING) as file,
    ):
        plain = csv.writer(file, lineterminator="\n")
        # Python 3.11 writes a carriage return without quotes, and cannot read it then.
        quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        plain.writerow(FIELDS)
        for row in rows:
            values = _values(row)
            returns = any("\r" in str(value) for value in values)
            (quoted if returns else plain).writerow(values)


def _values(row: Mapping) -> list:
    return [row[field] for field in FIELDS]


def _cell(value: object) -> str:
    """Return the text of a value as :mod:`csv` writes it."""
    return "" if value is None else str(value)


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
    # Earlier versions wrote no confidence, the last column.
    lines = {FIELDS, *(tuple(map(_cell, _values(row))) for row in rows)}
    kept = lines | {line[:-1] for line in lines}
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
