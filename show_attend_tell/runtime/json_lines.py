"""Read JSON Lines files whose objects have a key of their own."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from show_attend_tell.runtime.errors import DataError, quote
from show_attend_tell.runtime.untrusted import parse_json


def read_rows(
    path: Path,
    lines: Iterable[str],
    fault_of: Callable[[object], str | None],
    key: str,
    advice: str,
    skip_blank: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the object of each line.

    Args:
        path: of the file, for messages.
        lines: its text.
        fault_of: returns what is wrong with a parsed line, or None.
        key: no two objects have the same value of this key, which is text.
        advice: what to do about a malformed file.
        skip_blank: whether a person may have left lines blank; by default they are
            malformed.

    Raises:
        DataError: a line is not JSON, has a fault, or has the key of another.
    """
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if skip_blank and not line.strip():
            continue
        try:
            row = parse_json(line)
            fault = fault_of(row)
        except ValueError as error:
            fault = f"not JSON ({error})"
        if fault is None and row[key] in seen:
            fault = f"the {key} {quote(row[key])} occurs twice"
        if fault is not None:
            raise DataError(f"{path}, line {number}: {fault}; {advice}")
        seen.add(row[key])
        yield row
