"""Read the word crops of IIIT5K, from their zip archives or an unpacked folder.

``train.tags`` and ``test.tags`` have a line "path label" for each crop. They name .png
files where the data set has .jpg files.
"""

import dataclasses
import io
import zipfile
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from data_prep.preparation import Preparation, Prepared, Problem, Problems
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.folders import is_left_alone
from show_attend_tell.runtime.untrusted import (
    ZIP_FAULTS,
    as_value_error,
    open_zip,
    reading,
    require_within,
)
from show_attend_tell.siblings.words.data import Word, fold, read_crop
from show_attend_tell.siblings.words.rendering.prepare import SHEET, write_words

_SUFFIXES = (".jpg", ".jpeg", ".png")
_MOST_BYTES = 20_000_000  # of a crop, or of the tags
_SEED = 0  # of the order in which photos become validation photos

Root = Path | zipfile.Path  # a folder, or a folder in an archive


class CropProblem(StrEnum):
    """Kinds of problems with crops, as they are listed."""

    BAD_LABEL = "label with unknown characters or too many of them"
    UNREADABLE = "crop that cannot be read"
    ABSENT = "missing crop"
    WITHOUT_WORD = "crop without a word"


class Crop(NamedTuple):
    """A crop with its row of the manifest."""

    row: Word
    image: np.ndarray  # (32, 100) uint8


def prepare_iiit5k(preparation: Preparation) -> Prepared:
    """Write crops, manifest and contact sheet.

    Raises:
        DataError: there are no training crops or too few, an archive is damaged, or
            crops have problems that are refused.
    """
    data = preparation.require_data()
    folder = preparation.folder
    crops, problems = read_iiit5k(data, preparation.experiment.data.held_out)
    preparation.record(problems)
    rows, images = zip(*crops, strict=True)
    write_words(folder, len(rows), [(np.stack(images), list(rows))])
    counts = Counter(row.split for row in rows)
    words = {split: {"words": count} for split, count in counts.items()}
    facts = [f"crops of {data}", f"look at {folder / SHEET}"]
    return Prepared(folder, words, facts, problems)


def read_iiit5k(data: Path, validation: int) -> tuple[list[Crop], Problems]:
    """Read the training crops, and the test crops where they are present.

    Args:
        data: a folder with archives or unpacked files, or an archive.
        validation: number of training crops that become the split ``val``. All crops
            of a photo are in the same split.

    Returns:
        The crops in the order ``train``, ``val``, ``test``, and the problems of
        skipped crops.

    Raises:
        DataError: there are no training crops or too few, or an archive is damaged.
    """
    problems = Problems()
    crops: dict[str, list[Crop]] = {"train": [], "test": []}
    for root in _roots(data):
        for split in crops:
            # The first place that has a split; unpacked folders come before archives.
            crops[split] = crops[split] or _read_split(root, split, problems)
    train = crops["train"]
    if not train:
        first = f" ({problems.summary()[0]})" if problems else ""
        raise DataError(
            f"{data}: must have train.tags with its crops, or IIIT5K_train.zip. "
            f"Received: none{first}; name the folder of IIIT5K's files with --data"
        )
    if len(train) <= validation:
        raise DataError(
            f"{data}: data.validation must be less than the {len(train)} training "
            f"crops. Received: {validation}; lower it"
        )
    held_names = _validation_paths([crop.row.path for crop in train], validation)
    kept = [crop for crop in train if crop.row.path not in held_names]
    held = [
        Crop(dataclasses.replace(row, split="val"), image)
        for row, image in train
        if row.path in held_names
    ]
    return [*kept, *held, *crops["test"]], problems


def _roots(data: Path) -> Iterator[Root]:
    """Yield every place with tags: folders and their archives, or an archive."""
    if not data.exists():
        raise DataError(f"{data}: no such folder; name the folder of IIIT5K's files")
    archives = [data]
    if data.is_dir():
        tags = sorted([*data.glob("*.tags"), *data.glob("*/*.tags")])
        yield from dict.fromkeys(path.parent for path in tags)
        archives = sorted(data.glob("*.zip"))
    for path in archives:
        with reading(path, DataError, "get the archive again"):
            archive = open_zip(path)
        # It stays open until the caller asks for the next place.
        with archive:
            # macOS adds `__MACOSX/._train.tags`, which has no lines.
            tags = [
                name
                for name in archive.namelist()
                if name.endswith(".tags")
                and not any(map(is_left_alone, PurePosixPath(name).parts))
            ]
            # With the slash, by which zipfile.Path knows a folder.
            folder, slash, _ = min(tags, default="").rpartition("/")
            yield zipfile.Path(archive, folder + slash)


def _read(path: Root) -> bytes:
    """Return the content of a file, whose size in an archive may be forged."""
    with as_value_error(*ZIP_FAULTS), path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    require_within(len(content), _MOST_BYTES)
    return content


def _read_split(root: Root, split: str, problems: Problems) -> list[Crop]:
    """Return the crops of a split; empty if the place has no tags for it."""
    tags = root / f"{split}.tags"
    if not tags.is_file():
        return []
    with reading(tags, DataError, "get the file again"):
        text = _read(tags).decode("utf-8-sig")
    crops = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        path, _, label = line.strip().partition(" ")
        if not label:
            problems.add(Problem.MALFORMED_LINE, f"{tags.name}: line {number}")
            continue
        try:
            name = _find(root, path)
            if name is None:
                problems.add(CropProblem.ABSENT, path)
            else:
                row = Word(split, fold(label.strip()), name)
                crops.append(Crop(row, read_crop(io.BytesIO(_read(root / name)))))
        # First, because a DataError is a ValueError too; a PhotoError is not caught
        # here.
        except DataError:
            problems.add(CropProblem.BAD_LABEL, f"{path} {label.strip()}")
        except (OSError, ValueError):
            problems.add(CropProblem.UNREADABLE, path)
    return crops


def _find(root: Root, path: str) -> str | None:
    """Return the name of the file that a path of the tags means, None if absent."""
    stem = PurePosixPath(path).with_suffix("")
    # Tags must not name files outside the folder.
    if stem.is_absolute() or ".." in stem.parts:
        return None
    names = [path, *(f"{stem}{suffix}" for suffix in _SUFFIXES)]
    return next((name for name in names if (root / name).is_file()), None)


def _validation_paths(paths: list[str], count: int) -> set[str]:
    """Choose the crops for validation: whole photos, in a fixed random order.

    The crops of a photo look alike; their names begin with its number. A photo with
    more crops than are still needed is skipped, unless no photo has fewer.
    """
    photos: dict[str, list[str]] = {}
    for path in sorted(paths):
        photo = PurePosixPath(path).stem.rpartition("_")[0]
        # A name without a number is a photo of its own.
        photos.setdefault(photo or path, []).append(path)
    # Sorted first: the choice must not depend on the order of the tags.
    names = sorted(photos)
    np.random.default_rng(_SEED).shuffle(names)
    chosen: list[str] = []
    for name in names:
        if len(chosen) + len(photos[name]) <= count:
            chosen += photos[name]
    # Crops of other photos make up an exact number.
    left = [path for name in names for path in photos[name] if path not in chosen]
    return {*chosen, *left[: count - len(chosen)]}
