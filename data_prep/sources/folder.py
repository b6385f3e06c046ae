"""Read the user's photos: a folder with a table of captions, or a text beside each.

The first of these that the folder has is read; names are relative to the folder, and a
name without a folder may be that of any photo below it:

* ``captions.csv``, ``captions.jsonl``, ``captions.txt`` (Kaggle's), ``metadata.csv`` or
  ``metadata.jsonl`` (Hugging Face's, also in the folders ``train``, ``validation`` and
  ``test``). Columns, or keys, are ``file`` (or ``path``, ``image``, ``file_name``),
  ``caption`` (or ``text``) and optionally ``split``; a photo with several captions has
  several rows, or a list of captions in JSON;
* annotations of COCO's form, ``*.json`` with ``images`` and ``annotations``;
* ``a.txt`` beside ``a.jpg``, a caption on each line.
"""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from data_prep.data_folder import DataFolder, read_text
from data_prep.preparation import Problem
from data_prep.sources.captions import Captions, Lists, join_by_name
from data_prep.sources.published import (
    is_coco,
    parse_annotations,
    read_annotations_file,
)
from data_prep.sources.tables import (
    BY_HASH,
    SPLITS,
    Row,
    lists_by_hash,
    read_table,
)
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.unicode_text import in_one_form
from show_attend_tell.runtime.errors import DataError, quote

CSV = "captions.csv"
JSON_LINES = "captions.jsonl"
KAGGLE = "captions.txt"
METADATA = ("metadata.csv", "metadata.jsonl")
_SPLIT_IN_NAME = re.compile(f"(?<![a-z])({'|'.join(SPLITS)})(?![a-z])")


def read_folder(data: DataFolder) -> list[Photo]:
    """Read the user's photos; an id is the first name of the photo in the table.

    Raises:
        DataError: there are no captions, or several tables, or one cannot be read.
    """
    tables = _tables(data)
    if tables:
        rows = [row for path in tables for row in _rows_of_table(data, path)]
    else:
        rows = _rows_of_annotations(data) or _rows_of_texts(data)
        if not rows:
            raise _no_captions(data)
    places = photo_places(data, dict.fromkeys(row.name for row in rows))
    ids = first_names(places)
    if others := [name for name, first in ids.items() if name != first]:
        data.problems.notes.append(
            f"names of photos that another name also means, joined: {len(others)}, "
            f"the first is {quote(others[0])}, also {quote(ids[others[0]])}"
        )
    captions: Captions = {}
    lists: Lists = {}
    for written, texts, split in rows:
        name = ids.get(written, written)
        captions.setdefault(name, []).extend(texts)
        if split:
            lists.setdefault(split, []).append(name)
    lists = {split: list(dict.fromkeys(names)) for split, names in lists.items()}
    unnamed = captions.keys() - {name for names in lists.values() for name in names}
    if not lists:
        lists = lists_by_hash(captions)
        data.problems.notes.append(BY_HASH)
    elif unnamed:
        note = f"photos that name no split, put in 'none': {len(unnamed)}"
        data.problems.notes.append(note)
    for path in sorted(set(data.photo_files).difference(places.values())):
        name = path.relative_to(data.folder).as_posix()
        data.problems.add(Problem.NO_CAPTIONS, name)
    # One name for each file, which would be several photos otherwise.
    places = {name: path for name, path in places.items() if ids[name] == name}
    return join_by_name(data, captions, lists, places)


def photo_places(data: DataFolder, names: Iterable[str]) -> dict[str, Path]:
    """Return the file of each name that has one."""
    relative = {
        path.relative_to(data.folder).as_posix(): path for path in data.photo_files
    }
    forms = {in_one_form(name): path for name, path in relative.items()}
    # Photos of any folder, also in archives, by their names alone.
    anywhere = {
        in_one_form(name): path
        for name, path in data.photos.items()
        if name not in data.found_twice
    }
    places = {}
    for name in names:
        path = data.folder / name
        # os.path returns False for a name that no file can have; Path.is_file raises.
        if os.path.isfile(path):
            places[name] = path
        elif found := forms.get(in_one_form(name)):
            places[name] = found
        elif found := anywhere.get(in_one_form(name)):
            places[name] = found
    return places


def first_names(places: Mapping[str, Path]) -> dict[str, str]:
    """Return the first name of each name's file: a table may use several for one."""
    first: dict[str, str] = {}
    return {
        name: first.setdefault(os.path.realpath(path), name)
        for name, path in places.items()
    }


def _tables(data: DataFolder) -> list[Path]:
    """Return the table of captions, or those of the folders of splits.

    Raises:
        DataError: the folder has several tables.
    """
    names = [CSV, JSON_LINES, KAGGLE, *METADATA]
    present = [name for name in names if (data.folder / name).is_file()]
    if len(present) > 1:
        received = "both" if present == names[:2] else ", ".join(present)
        raise DataError(f"{_must_have(data)} Received: {received}; keep one")
    if present:
        return [data.folder / present[0]]
    folders = [data.folder / split for split in SPLITS]
    return [
        folder / name
        for folder in folders
        for name in METADATA
        if (folder / name).is_file()
    ]


def _must_have(data: DataFolder) -> str:
    return (
        f"{data.folder}: must contain either {CSV} or {JSON_LINES} (or {KAGGLE}, "
        "metadata.jsonl, annotations of COCO, a .txt beside each photo)."
    )


def _no_captions(data: DataFolder) -> DataError:
    # Of annotations, such as ids that are not numbers.
    if data.problems.names(Problem.MALFORMED_LINE):
        return DataError(
            f"{data.folder}: no captions could be read: "
            f"{'; '.join(data.problems.summary())}; correct the files"
        )
    remedy = "neither; write one of them, or set `data.source` to another format"
    if data.text_names("*.json"):
        remedy = 'neither; for Karpathy\'s JSON set `data.source` to "karpathy"'
    return DataError(f"{_must_have(data)} Received: {remedy}")


def _rows_of_table(data: DataFolder, path: Path) -> Iterator[Row]:
    """Yield the rows of a table; record malformed ones."""
    for row in read_table(read_text(path), data, path.suffix == ".jsonl"):
        if path.parent == data.folder:
            yield row
        else:
            folder = path.parent.name
            name = posixpath.normpath(f"{folder}/{row.name}")
            yield Row(name, row.captions, row.split or SPLITS[folder])


def _rows_of_annotations(data: DataFolder) -> list[Row]:
    """Return the rows of all files of COCO's form; their names may name a split."""
    rows = []
    for name in data.text_names("*.json"):
        content = parse_annotations(file := data.require_text(name))
        if not is_coco(content):
            continue
        found = _SPLIT_IN_NAME.search(name.lower())
        split = SPLITS[found[1]] if found else None
        captions = read_annotations_file(file, content, data.problems)
        rows += [Row(photo, texts, split) for photo, texts in captions.items()]
    return rows


def _rows_of_texts(data: DataFolder) -> list[Row]:
    """Return a row for each photo with a text of its name beside it.

    Photos in folders that are named like splits belong to them.
    """
    rows = []
    for path in data.photo_files:
        texts = (path.with_suffix(".txt"), path.with_name(f"{path.name}.txt"))
        text = next(filter(os.path.isfile, texts), None)
        if text is None:
            continue
        name = path.relative_to(data.folder)
        lines = read_text(text).text.splitlines()
        captions = [line.strip() for line in lines if line.strip()]
        split = SPLITS.get(name.parts[0].lower()) if len(name.parts) > 1 else None
        # An empty text is an empty caption, which is reported as such.
        rows.append(Row(name.as_posix(), captions or [""], split))
    return rows
