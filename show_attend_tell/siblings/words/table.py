"""Read the user's crops of words: a folder with a table ``file,word``.

The table is ``words.csv``, ``labels.csv`` or the only ``.csv`` of the folder. Its
columns are ``file`` (or ``path``, ``image``, ``filename``), ``word`` (or ``text``,
``label``) and optionally ``split``. Crops may be in folders below, or in zip archives.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.data_folder import DataFolder, TextFile, read_text
from data_prep.preparation import Preparation, Prepared, Problem
from data_prep.sources.folder import first_names, photo_places
from data_prep.sources.tables import (
    hash_order,
    lists_by_hash,
    read_table,
)
from show_attend_tell.data.unicode_text import visible_text
from show_attend_tell.runtime.errors import DataError, PhotoError, plural
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.siblings.words.data import (
    SPLITS,
    Word,
    characters_of,
    fold,
    read_crop,
)
from show_attend_tell.siblings.words.iiit5k import CropProblem
from show_attend_tell.siblings.words.rendering.prepare import SHEET, write_words

TABLES = ("words.csv", "labels.csv")
_COLUMNS = ("word", "words", "text", "label")
_SHOWN = 60  # characters of an alphabet in the report


def prepare_table(preparation: Preparation) -> Prepared:
    """Write crops, manifest and contact sheet of the user's words.

    Raises:
        DataError: the table is absent or malformed, there are no crops to train with
            or to validate with, or crops have problems that are refused.
    """
    data = DataFolder(preparation.require_data(), preparation.folder)
    table = _find_table(data)
    words, splits = _read_rows(table, data)
    rows, places = _join(data, words, splits)
    damaged = data.unpack(places.values(), preparation.progress)
    crops = []
    kept = []
    with progress_bar(len(rows), "crop", "crops", shown=preparation.progress) as bar:
        for row in rows:
            path = places[row.path]
            bar.update()
            # `unpack` has recorded its problem.
            if path in damaged:
                continue
            try:
                crops.append(read_crop(path))
            except PhotoError:
                data.problems.add(CropProblem.UNREADABLE, row.path)
            else:
                kept.append(row)
    preparation.record(data.problems)
    counts = {split: sum(row.split == split for row in kept) for split in SPLITS}
    _require_splits(table, counts, data)
    write_words(preparation.folder, len(kept), [(np.stack(crops), kept)])
    alphabet = characters_of(row.word for row in kept)
    shown = alphabet if len(alphabet) <= _SHOWN else f"{alphabet[:_SHOWN]}..."
    facts = [
        f"alphabet: {plural(len(alphabet), 'character')}, {shown}",
        f"look at {preparation.folder / SHEET}",
    ]
    present = {split: {"words": count} for split, count in counts.items() if count}
    return Prepared(preparation.folder, present, facts, data.problems)


def _find_table(data: DataFolder) -> TextFile:
    """Return the table of a folder."""
    paths = [data.folder / name for name in TABLES]
    present = [path for path in paths if path.is_file()]
    if not present:
        present = sorted(data.folder.glob("*.csv"))
    if len(present) == 1:
        return read_text(present[0])
    received = ", ".join(path.name for path in present) or "none"
    raise DataError(
        f"{data.folder}: must contain words.csv with the columns file and word. "
        f"Received: {received}; {'keep one' if present else 'write it'}"
    )


def _read_rows(
    table: TextFile, data: DataFolder
) -> tuple[dict[str, str], dict[str, str | None]]:
    """Return the word and the split, if any, of each crop in the table."""
    words: dict[str, str] = {}
    splits: dict[str, str | None] = {}
    for row in read_table(table, data, texts=_COLUMNS):
        # In NFC and without invisible characters, which would enter the alphabet.
        label = visible_text(row.captions[0]).strip()
        if row.name in words:
            data.problems.add(Problem.DUPLICATE_ID, row.name)
            continue
        try:
            words[row.name] = fold(label, None)
        except DataError:
            data.problems.add(CropProblem.BAD_LABEL, f"{row.name} {label}")
        else:
            splits[row.name] = row.split
    return words, splits


def _join(
    data: DataFolder, words: dict[str, str], splits: dict[str, str | None]
) -> tuple[list[Word], dict[str, Path]]:
    """Return the rows in the order of splits, and the file of each crop."""
    found = photo_places(data, words)
    for name in words:  # in the table's order
        if name not in found:
            data.problems.add(CropProblem.ABSENT, name)
    places = {}
    for name, first in first_names(found).items():
        # A table may name one file in several ways: its first name counts.
        if name == first:
            places[name] = found[name]
        else:
            data.problems.add(Problem.DUPLICATE_ID, name)
    named = {name: split for name, split in splits.items() if split}
    if not named:
        data.problems.notes.append(
            "no row names a split: 80% of the crops train, 10% validate, 10% test, by "
            "a hash of the name"
        )
        names = hash_order(places)
        named = {
            name: split
            for split, listed in lists_by_hash(names).items()
            for name in listed
        }
        if len(names) > 1:  # the first validates, the last trains
            named |= {names[0]: "val", names[-1]: "train"}
    unnamed = sum(named.get(name) not in SPLITS for name in places)
    if unnamed:
        data.problems.notes.append(f"crops left out that name no split: {unnamed}")
    rows = [
        Word(split, words[name], name)
        for split in SPLITS
        for name in places
        if named.get(name) == split
    ]
    for name in _unlisted(data, found):
        data.problems.add(CropProblem.WITHOUT_WORD, name)
    return rows, places


def _unlisted(data: DataFolder, places: dict[str, Path]) -> Iterator[str]:
    """Yield the names of pictures that the table does not name."""
    for path in sorted(set(data.photo_files).difference(places.values())):
        yield path.relative_to(data.folder).as_posix()


def _require_splits(table: TextFile, counts: dict[str, int], data: DataFolder) -> None:
    """Raise a DataError unless there are crops to train and to validate with."""
    for split, purpose in (("train", "train"), ("val", "validate")):
        if not counts[split]:
            skipped = "".join(f"; skipped: {line}" for line in data.problems.summary())
            raise DataError(
                f"{table.label}: must name a crop or more to {purpose} with. Received: "
                f"none in the split {split!r}{skipped}; add crops, or correct the table"
            )
