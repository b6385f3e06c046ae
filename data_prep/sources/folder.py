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
from pathlib import Path

from data_prep.locate import DataFolder, TextFile, read_text_file
from data_prep.problems import MALFORMED_LINE, NO_CAPTIONS, Problems
from data_prep.sources.captions import invert_split_lists, join_by_name
from show_attend_tell.data.manifest import Photo
from show_attend_tell.runtime.errors import DataError, quote
from show_attend_tell.runtime.json_text import is_encodable, parse_json

CSV, JSON_LINES = "captions.csv", "captions.jsonl"
VALIDATION = TEST = 0.1  # shares of the photos if no row names a split
_SPLITS = {name: name for name in ("train", "val", "test", "none")}
_SPLITS |= {"training": "train", "dev": "val", "valid": "val", "validation": "val"}

Row = tuple[str, str, str | None]  # file, caption, split


def split_by_hash(photo_id: str) -> str:
    """Return a split that depends on the id only: a tenth each of val and test."""
    digest = hashlib.sha256(f"0:{photo_id}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if share < VALIDATION:
        return "val"
    return "test" if share < VALIDATION + TEST else "train"


def _csv_rows(file: TextFile) -> Iterator[tuple[int, dict | None]]:
    """Yield the last line number and the values of each row, None if malformed."""
    rows = csv.reader(io.StringIO(file.text, newline=""))
    columns: list[str] = []
    while True:
        before = rows.line_num
        try:
            row = next(rows)
        except StopIteration:
            row = None
        except csv.Error as error:
            if not columns or rows.line_num > before + 1:  # an unclosed quote
                raise DataError(
                    f"{file.label}, line {rows.line_num}: not CSV: {error}; correct "
                    "the line"
                ) from None
            yield rows.line_num, None
            continue
        if not columns:
            columns = _require_columns(file, row or [])
        elif row is None:
            return
        elif row:
            fits = len(row) <= len(columns)
            yield rows.line_num, dict(zip(columns, row, strict=False)) if fits else None


def _require_columns(file: TextFile, columns: list[str]) -> list[str]:
    """Return the columns of a CSV file, or raise an error if one is absent."""
    if len({"file", "path"} & set(columns)) != 1 or "caption" not in columns:
        raise DataError(
            f"{file.label}: the first line must name the columns `file` (or `path`), "
            "`caption` and optionally `split`, separated by commas. Received: "
            f"{quote(columns)}"
        )
    return columns


def _json_rows(file: TextFile) -> Iterator[tuple[int, object]]:
    """Yield the number and the value of each line, None if it is not JSON."""
    for number, line in enumerate(file.text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, parse_json(line)
            except ValueError:
                yield number, None


def _parse_row(values: object) -> Row | None:
    """Return file, caption and split of a row, or None if it is malformed."""
    if not isinstance(values, dict):
        return None
    file = values.get("file") or values.get("path")
    caption, split = values.get("caption"), values.get("split") or None
    if not isinstance(file, str) or not isinstance(caption, str) or not file.strip():
        return None
    if not is_encodable(file + caption):
        return None
    if "\n" in caption:  # an unclosed quote extends over the lines below it
        return None
    if split is None:
        return posixpath.normpath(file.strip()), caption, None
    if not isinstance(split, str) or split.strip().lower() not in _SPLITS:
        return None
    return posixpath.normpath(file.strip()), caption, _SPLITS[split.strip().lower()]


def _read_rows(folder: Path, problems: Problems) -> list[Row]:
    csv_file, json_file = folder / CSV, folder / JSON_LINES
    if csv_file.is_file() == json_file.is_file():
        raise DataError(
            f"{folder}: must contain either {CSV} or {JSON_LINES}. Received: "
            f"{'both' if csv_file.is_file() else 'neither'}; keep one"
        )
    path = csv_file if csv_file.is_file() else json_file
    file = read_text_file(path)
    rows = []
    for number, values in _csv_rows(file) if path == csv_file else _json_rows(file):
        row = _parse_row(values)
        if row is None:
            problems.add(MALFORMED_LINE, f"{file.label}:{number}")
        else:
            rows.append(row)
    return rows


def read_folder(data: DataFolder) -> tuple[list[Photo], Problems]:
    """Read the user's photos; an id is the path relative to the folder.

    Photos in archives are not read.

    Raises:
        DataError: the table of captions is absent, or it cannot be read.
    """
    problems = Problems()
    rows = _read_rows(data.folder, problems)
    captions: dict[str, list[str]] = {}
    lists: dict[str, list[str]] = {}
    for name, caption, split in rows:
        captions.setdefault(name, []).append(caption)
        if split is not None:
            lists.setdefault(split, []).append(name)
    splits = invert_split_lists(lists, problems)
    unnamed = len(captions.keys() - splits.keys())
    if not lists:
        splits = {name: split_by_hash(name) for name in captions}
        problems.notes.append(
            f"no row names a split: {1 - VALIDATION - TEST:.0%} of the photos train, "
            f"{VALIDATION:.0%} validate, {TEST:.0%} test, by a hash of the id"
        )
    elif unnamed:
        problems.notes.append(f"photos that name no split, put in 'none': {unnamed}")
    places = {name: data.folder / name for name in captions}
    for path in sorted(set(data.photo_files).difference(places.values())):
        problems.add(NO_CAPTIONS, path.relative_to(data.folder).as_posix())
    # os.path returns False for a name that no file can have; Path.is_file raises.
    places = {name: path for name, path in places.items() if os.path.isfile(path)}
    return join_by_name(places, captions, splits, problems), problems
