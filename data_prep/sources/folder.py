"""Read the user's photos: a folder with ``captions.csv`` or ``captions.jsonl``.

Columns, or keys, are ``file`` (or ``path``), ``caption`` and optionally ``split``; a
photo with several captions has several rows. File names are relative to the folder.
"""

import csv
import hashlib
import io
import os
import posixpath
from collections.abc import Iterator

from data_prep.data_folder import DataFolder, TextFile, read_text
from data_prep.preparation import Problem
from data_prep.sources.captions import Captions, Lists, join_by_name
from show_attend_tell.data.manifest import Photo
from show_attend_tell.runtime.errors import DataError, quote
from show_attend_tell.runtime.untrusted import is_encodable, parse_json

CSV, JSON_LINES = "captions.csv", "captions.jsonl"
VALIDATION = TEST = 0.1  # shares of the photos if no row names a split
_SPLITS = {name: name for name in ("train", "val", "test", "none")}
_SPLITS |= {"training": "train", "dev": "val", "valid": "val", "validation": "val"}


def split_by_hash(photo_id: str) -> str:
    """Return a split that depends on the id only: a tenth each of val and test."""
    digest = hashlib.sha256(f"0:{photo_id}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if share < VALIDATION:
        return "val"
    return "test" if share < VALIDATION + TEST else "train"


def read_folder(data: DataFolder) -> list[Photo]:
    """Read the user's photos; an id is the path relative to the folder.

    Photos in archives are not read.

    Raises:
        DataError: the table of captions is absent, or it cannot be read.
    """
    paths = [data.folder / CSV, data.folder / JSON_LINES]
    if paths[0].is_file() == paths[1].is_file():
        remedy = "neither; write one of them, or set `data.source` to another format"
        if paths[0].is_file():
            remedy = "both; keep one"
        elif data.text_names("*.json"):
            remedy = 'neither; for Karpathy\'s JSON set `data.source` to "karpathy"'
        raise DataError(
            f"{data.folder}: must contain either {CSV} or {JSON_LINES}. Received: "
            f"{remedy}"
        )
    is_csv = paths[0].is_file()
    file = read_text(paths[0] if is_csv else paths[1])
    captions: Captions = {}
    lists: Lists = {}
    for number, values in _csv_rows(file) if is_csv else _json_rows(file):
        try:
            name, caption, split = _parse_row(values)
        except (ValueError, TypeError, AttributeError, LookupError):
            data.problems.add(Problem.MALFORMED_LINE, f"{file.label}:{number}")
            continue
        captions.setdefault(name, []).append(caption)
        if split:
            lists.setdefault(split, []).append(name)
    unnamed = captions.keys() - {name for names in lists.values() for name in names}
    if not lists:
        for name in captions:
            lists.setdefault(split_by_hash(name), []).append(name)
        data.problems.notes.append(
            f"no row names a split: {1 - VALIDATION - TEST:.0%} of the photos train, "
            f"{VALIDATION:.0%} validate, {TEST:.0%} test, by a hash of the id"
        )
    elif unnamed:
        note = f"photos that name no split, put in 'none': {len(unnamed)}"
        data.problems.notes.append(note)
    places = {name: data.folder / name for name in captions}
    for path in sorted(set(data.photo_files).difference(places.values())):
        name = path.relative_to(data.folder).as_posix()
        data.problems.add(Problem.NO_CAPTIONS, name)
    # os.path returns False for a name that no file can have; Path.is_file raises.
    places = {name: path for name, path in places.items() if os.path.isfile(path)}
    return join_by_name(data, captions, lists, places)


def _csv_rows(file: TextFile) -> Iterator[tuple[int, dict | None]]:
    """Yield the last line number and the values of each row, None if malformed."""
    rows = csv.reader(io.StringIO(file.text, newline=""))
    columns: list[str] = []
    row: list[str] | None = []
    while row is not None:
        before = rows.line_num
        try:
            row = next(rows, None)
        except csv.Error as error:
            if columns and rows.line_num == before + 1:
                yield rows.line_num, None
                continue
            raise DataError(  # an unclosed quote
                f"{file.label}, line {rows.line_num}: not CSV: {error}; correct the "
                "line"
            ) from None
        if not columns:
            columns = row or []
            if len({"file", "path"} & set(columns)) != 1 or "caption" not in columns:
                raise DataError(
                    f"{file.label}: the first line must name the columns `file` (or "
                    "`path`), `caption` and optionally `split`, separated by commas. "
                    f"Received: {quote(columns)}"
                )
        elif row:
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


def _parse_row(values: dict) -> tuple[str, str, str | None]:
    """Return file, caption and split of a row.

    Raises:
        ValueError, TypeError, AttributeError, LookupError: the row is malformed.
    """
    file = (values.get("file") or values["path"]).strip()
    caption, split = values["caption"], values.get("split")
    # An unclosed quote extends over the lines below it.
    if not file or not is_encodable(file + caption) or "\n" in caption:
        raise ValueError("malformed")
    return (
        posixpath.normpath(file),
        caption,
        _SPLITS[split.strip().lower()] if split else None,
    )
