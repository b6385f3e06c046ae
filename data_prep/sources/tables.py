"""Parse tables of captions in CSV or JSON Lines, and split photos by a hash.

Columns, or keys, are ``file`` (or ``path``, ``image``, ``file_name``), ``caption`` (or
``text``) and optionally ``split``.
"""

import csv
import hashlib
import io
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from data_prep.data_folder import DataFolder, TextFile
from data_prep.preparation import Problem
from data_prep.sources.captions import Lists
from show_attend_tell.runtime.errors import DataError, quote
from show_attend_tell.runtime.untrusted import is_encodable, parse_json

VALIDATION = TEST = 0.1  # shares of the photos if no row names a split
_FILES = ("file", "path", "image", "file_name", "filename", "image_name")
_TEXTS = ("caption", "text", "comment", "captions")
SPLITS = {name: name for name in ("train", "val", "test", "none")}
SPLITS |= {"training": "train", "dev": "val", "valid": "val", "validation": "val"}
BY_HASH = (
    f"no row names a split: {1 - VALIDATION - TEST:.0%} of the photos train, "
    f"{VALIDATION:.0%} validate, {TEST:.0%} test, by a hash of the id"
)


class Row(NamedTuple):
    """A row of a table: a photo with some of its captions."""

    name: str
    captions: list[str]
    split: str | None


def _share(photo_id: str) -> float:
    """Return a number in [0, 1) that depends on the id only."""
    # The 0 was a seed that could be set. Without it photos would change their splits.
    # The name of a file need not be UTF-8.
    content = f"0:{photo_id}".encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(content).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def hash_order(names: Iterable[str]) -> list[str]:
    """Return names in a random order that depends on them only: val, test, train."""
    return sorted(names, key=_share)


def split_by_hash(photo_id: str) -> str:
    """Return a split that depends on the id only: a tenth each of val and test."""
    share = _share(photo_id)
    if share < VALIDATION:
        return "val"
    return "test" if share < VALIDATION + TEST else "train"


def lists_by_hash(names: Iterable[str]) -> Lists:
    """Return the split of every photo by a hash of its name; see :data:`BY_HASH`."""
    lists: Lists = {}
    for name in names:
        lists.setdefault(split_by_hash(name), []).append(name)
    return lists


def read_table(
    file: TextFile,
    data: DataFolder,
    lines: bool = False,
    texts: Sequence[str] = _TEXTS,
) -> Iterator[Row]:
    """Yield the rows of a table; record malformed ones.

    Args:
        file: the table.
        data: receives the problems.
        lines: whether it is JSON Lines and not CSV.
        texts: names of the column, or key, of the caption; the first one is named if
            it is absent.
    """
    for number, values in _json_rows(file) if lines else _csv_rows(file, texts):
        try:
            yield _parse_row(values, texts)
        except (ValueError, TypeError, AttributeError, LookupError):
            data.problems.add(Problem.MALFORMED_LINE, f"{file.label}:{number}")


def _csv_rows(
    file: TextFile, texts: Sequence[str]
) -> Iterator[tuple[int, dict | None]]:
    """Yield the last line number and the values of each row, None if malformed."""
    rows = csv.reader(io.StringIO(file.text, newline=""))
    columns: list[str] = []
    row: list[str] | None = []
    while row is not None:
        before = rows.line_num
        try:
            row = next(rows, None)
        except csv.Error as error:
            # An error within one line, such as a field that is too long, costs that row
            # only. Over several lines it is an unclosed quote.
            if columns and rows.line_num == before + 1:
                yield rows.line_num, None
                continue
            raise DataError(  # an unclosed quote
                f"{file.label}, line {rows.line_num}: not CSV: {error}; correct the "
                "line"
            ) from None
        if not columns:
            columns = row or []
            columns = [column.strip() for column in columns]
            one_file = len(set(_FILES) & set(columns)) == 1
            if not one_file or set(texts).isdisjoint(columns):
                raise DataError(
                    f"{file.label}: the first line must name the columns `file` (or "
                    f"`path`), `{texts[0]}` and optionally `split`, separated by "
                    "commas. "
                    f"Received: {quote(columns)}"
                )
        elif row:
            # A shorter row lacks its last columns, such as the split.
            fits = len(row) <= len(columns)
            yield rows.line_num, dict(zip(columns, row, strict=False)) if fits else None


def _json_rows(file: TextFile) -> Iterator[tuple[int, object]]:
    """Yield the number and the value of each line, None if it is not JSON."""
    for number, line in enumerate(file.text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, parse_json(line)
            except ValueError:
                yield number, None


def _parse_row(values: Any, texts: Sequence[str]) -> Row:
    """Return the values of a row.

    Raises:
        ValueError, TypeError, AttributeError, LookupError: the row is malformed.
    """
    # The first of the known columns; a ValueError if the row has none of them.
    file, *_ = [values[key].strip() for key in _FILES if values.get(key)]
    captions, *_ = [values[key] for key in texts if key in values]
    split = values.get("split")
    if not isinstance(captions, list):
        captions = [captions]
    # An unclosed quote extends over the lines below it.
    if any("\n" in caption for caption in captions):
        raise ValueError("malformed")
    if not file or not captions or not is_encodable("".join([file, *captions])):
        raise ValueError("malformed")
    return Row(
        # Programs of Windows separate folders by backslashes.
        posixpath.normpath(file.replace("\\", "/")),
        captions,
        SPLITS[split.strip().lower()] if split else None,
    )
