"""Photos of one's own: a folder with ``captions.csv`` or ``captions.jsonl``.

Columns, or keys, are ``file`` (or ``path``), ``caption`` and, if wanted, ``split``; a
photo with several captions has several rows. Files are named relative to the folder.
"""

import csv
import hashlib
import io
import json
import posixpath
from collections.abc import Iterable, Iterator
from pathlib import Path

from data_prep.locate import DataFolder, TextFile, walk
from data_prep.problems import NO_CAPTIONS, ODD_LINE, Problems
from data_prep.sources.assemble import assemble, splits_of_lists
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import PHOTO_SUFFIXES
from show_attend_tell.runtime.errors import DataError

CSV, JSON_LINES = "captions.csv", "captions.jsonl"
VALIDATION = TEST = 0.1  # shares of the photos, where no split is given
_SPLITS = {name: name for name in ("train", "val", "test", "none")}
_SPLITS |= {"training": "train", "dev": "val", "valid": "val", "validation": "val"}

Row = tuple[str, str, str | None]  # file, caption, split


def split_by_hash(photo_id: str, seed: int = 0) -> str:
    """Return the split of a photo, the same whatever other photos there are.

    Args:
        photo_id: the photo's id.
        seed: another seed gives another split.

    Returns:
        ``val`` or ``test`` for a tenth of the photos each, else ``train``.
    """
    digest = hashlib.sha256(f"{seed}:{photo_id}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if share < VALIDATION:
        return "val"
    return "test" if share < VALIDATION + TEST else "train"


def _csv_rows(file: TextFile) -> Iterator[tuple[int, dict]]:
    """Yield the number of the line that ends a row, and the row."""
    rows = csv.DictReader(io.StringIO(file.text(), newline=""))
    try:
        columns = {"file", "path"} & set(rows.fieldnames or ())
        if len(columns) != 1 or "caption" not in rows.fieldnames:
            raise DataError(
                f"{file.label}: the first line must name the columns `file` (or "
                f"`path`), `caption` and, if wanted, `split`, with commas between. "
                f"Received: {rows.fieldnames}"
            )
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise DataError(
            f"{file.label}, line {rows.line_num}: not CSV: {error}; correct the line"
        ) from None


def _json_rows(file: TextFile) -> Iterator[tuple[int, object]]:
    """Yield the number of a line, and what it holds; None if that is not JSON."""
    for number, line in enumerate(file.text().split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError:
                yield number, None


def _row(values: object) -> Row | None:
    """Return the row that some values make, or None if they are odd."""
    if not isinstance(values, dict) or None in values:
        return None
    file = values.get("file") or values.get("path")
    caption, split = values.get("caption"), values.get("split") or None
    if not isinstance(file, str) or not isinstance(caption, str) or not file.strip():
        return None
    if "\n" in caption:  # a quote that never closes swallows the lines below it
        return None
    if split is None:
        return posixpath.normpath(file.strip()), caption, None
    if not isinstance(split, str) or split.strip().lower() not in _SPLITS:
        return None
    return posixpath.normpath(file.strip()), caption, _SPLITS[split.strip().lower()]


def _rows(folder: Path, problems: Problems) -> list[Row]:
    csv_file, json_file = folder / CSV, folder / JSON_LINES
    if csv_file.is_file() == json_file.is_file():
        raise DataError(
            f"{folder}: must hold either {CSV} or {JSON_LINES}. Received: "
            f"{'both' if csv_file.is_file() else 'neither'}; keep one"
        )
    path = csv_file if csv_file.is_file() else json_file
    file = TextFile(str(path), path.read_bytes())
    rows = []
    for number, values in _csv_rows(file) if path == csv_file else _json_rows(file):
        row = _row(values)
        if row is None:
            problems.add(ODD_LINE, f"{file.label}:{number}")
        else:
            rows.append(row)
    return rows


def _name_photos_without_rows(
    files: Iterable[Path], folder: Path, captioned: Iterable[str], problems: Problems
) -> None:
    known = {folder / name for name in captioned}
    for path in files:
        if path.suffix.lower() in PHOTO_SUFFIXES and path not in known:
            problems.add(NO_CAPTIONS, path.relative_to(folder).as_posix())


def read(
    data: DataFolder, photo_folder: Path, seed: int = 0
) -> tuple[list[Photo], Problems]:
    """Read a folder of one's own.

    Args:
        data: the folder.
        photo_folder: not used but to leave prepared data alone: own photos are not
            unpacked from archives.
        seed: of the split by hash, where no row names a split.

    Returns:
        The photos, their ids being their paths below the folder, and what is odd.

    Raises:
        DataError: there is no table of captions, or it cannot be read.
    """
    problems = Problems()
    rows = _rows(data.folder, problems)
    captions: dict[str, list[str]] = {}
    lists: dict[str, list[str]] = {}
    for name, caption, split in rows:
        captions.setdefault(name, []).append(caption)
        if split is not None:
            lists.setdefault(split, []).append(name)
    splits = splits_of_lists(lists, problems)
    if not lists:
        splits = {name: split_by_hash(name, seed) for name in captions}
        problems.notes.append(
            f"no row names a split: {1 - VALIDATION - TEST:.0%} of the photos train, "
            f"{VALIDATION:.0%} validate, {TEST:.0%} test, by a hash of id and seed "
            f"{seed}"
        )
    elif captions.keys() - splits.keys():
        unnamed = len(captions.keys() - splits.keys())
        problems.notes.append(f"photos that name no split, put in 'none': {unnamed}")
    places = {name: data.folder / name for name in captions}
    places = {name: path for name, path in places.items() if path.is_file()}
    files = walk(data.folder, leave_out=photo_folder.parent)
    _name_photos_without_rows(files, data.folder, captions, problems)
    return assemble(places, captions, splits, problems), problems
