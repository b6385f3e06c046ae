"""Write the captions of a journal as CSV."""

import csv
from collections.abc import Iterable, Mapping, Sequence
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
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows([row[field] for field in FIELDS] for row in rows)


def require_replaceable(path: Path, rows: Sequence[Mapping]) -> None:
    """Raise unless :func:`write_table` with these rows loses no line of the file.

    A CSV file has other lines if it was made by another program, or by version 0.1,
    which kept no journal beside it.

    Raises:
        OutputFileError: the file has a line that is not among `rows`.
        OSError: the file cannot be read.
    """
    if not path.exists():
        return
    kept = {FIELDS, *(tuple(str(row[field]) for field in FIELDS) for row in rows)}
    with path.open(newline="", **ENCODING) as file:
        for line in csv.reader(file):
            if tuple(line) not in kept:
                journal = path.with_suffix(".jsonl").name
                raise OutputFileError(
                    f"{path}: must be absent, or made from {journal} beside it. "
                    f"Received: a line that is not in {journal}, "
                    f"{','.join(line)[:60]!r}; name another file, or move this one"
                )
