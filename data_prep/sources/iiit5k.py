"""Read the word crops of IIIT5K, from their zip archives or an unpacked folder.

``train.tags`` and ``test.tags`` have a line "path label" for each crop. They name .png
files where the data set has .jpg files.
"""

import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from data_prep.locate import DAMAGED_ARCHIVE, is_safe
from data_prep.problems import MALFORMED_LINE, Problems
from data_prep.sources.preparation import Preparation, Prepared
from data_prep.words.parts import SHEET, SHOWN
from data_prep.words.render import contact_sheet
from show_attend_tell.data.characters import fold
from show_attend_tell.data.words import IMAGES, Word, read_crop, write_manifest
from show_attend_tell.runtime.errors import DataError, PhotoError, WordsError, one_line
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.regular_files import read_text_bytes, require_within

BAD_LABEL = "label with unknown characters or too many of them"
BAD_CROP = "crop that cannot be read"
ABSENT_CROP = "missing crop"
_SUFFIXES = (".jpg", ".jpeg", ".png")
_MOST_BYTES = 20_000_000  # of a crop, or of the tags
_SEED = 0  # of the order in which photos become validation photos

Read = Callable[[str], bytes]
"""Returns the content of a file of a source."""


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
    data, folder = preparation.require_data(), preparation.folder
    crops, problems = read_iiit5k(data, preparation.experiment.data.held_out)
    preparation.record(problems)
    images = np.stack([crop.image for crop in crops])
    rows = [crop.row for crop in crops]
    with atomic_path(folder / IMAGES) as temporary:
        np.save(temporary, images)
    with atomic_path(folder / SHEET) as temporary:
        words = [row.word for row in rows[:SHOWN]]
        contact_sheet(images[:SHOWN], words).save(temporary)
    write_manifest(folder, rows)
    counts = Counter(row.split for row in rows)
    words = {split: {"words": count} for split, count in counts.items()}
    facts = [f"crops of {data}", f"look at {folder / SHEET}"]
    return Prepared(folder, words, facts, problems)


def read_iiit5k(data: str | Path, validation: int) -> tuple[list[Crop], Problems]:
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
    data, problems = Path(data), Problems()
    crops: dict[str, list[Crop]] = {"train": [], "test": []}
    for source in _sources(data):
        for split in crops:
            crops[split] = crops[split] or _read_split(*source, split, problems)
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
        Crop(Word("val", crop.row.word, crop.row.path), crop.image)
        for crop in train
        if crop.row.path in held_names
    ]
    return [*kept, *held, *crops["test"]], problems


def _sources(data: Path) -> Iterator[tuple[Path, set[str], Read]]:
    """Yield the path of each source, its file names, and a function that reads a file.

    The sources are the folder, its subfolders that have tags, and its archives.
    """
    if not data.exists():
        raise DataError(f"{data}: no such folder; name the folder of IIIT5K's files")
    archives = [data]
    if data.is_dir():
        archives = sorted(data.glob("*.zip"))
        tags = sorted([*data.glob("*.tags"), *data.glob("*/*.tags")])
        for folder in dict.fromkeys(path.parent for path in tags):
            files = (path for path in folder.rglob("*") if path.is_file())
            names = {path.relative_to(folder).as_posix() for path in files}
            yield folder, names, partial(_read_file, folder)
    for path in archives:
        try:
            archive = zipfile.ZipFile(path)
        except (*DAMAGED_ARCHIVE, OSError) as error:
            raise DataError(
                f"{path}: cannot be read as a zip archive ({one_line(error)}); get the "
                "file again"
            ) from None
        with archive:
            members = {m.filename: m for m in archive.infolist() if is_safe(m)}
            tags = [name for name in members if name.endswith(".tags")]
            # A folder around all files is no part of their names.
            base = min(tags, default="").rpartition("/")[0]
            base += "/" if base else ""
            members = {
                name.removeprefix(base): member
                for name, member in members.items()
                if name.startswith(base)
            }
            yield path, set(members), partial(_read_member, archive, members)


def _read_file(folder: Path, name: str) -> bytes:
    return read_text_bytes(folder / name, _MOST_BYTES)


def _read_member(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str
) -> bytes:
    with archive.open(members[name]) as file:
        content = file.read(_MOST_BYTES + 1)  # the size in the archive may be forged
    require_within(len(content), _MOST_BYTES)
    return content


def _read_split(
    place: Path, names: set[str], read: Read, split: str, problems: Problems
) -> list[Crop]:
    """Return the crops of a split; empty if the source has no tags for it."""
    tags = f"{split}.tags"
    if tags not in names:
        return []
    try:
        text = read(tags).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(
            f"{place}: {tags} must be UTF-8 text; get the file again"
        ) from None
    except (*DAMAGED_ARCHIVE, OSError) as error:
        raise DataError(
            f"{place}: {tags} cannot be read ({one_line(error)}); get the file again"
        ) from None
    crops = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        path, _, label = line.strip().partition(" ")
        stem = PurePosixPath(path).with_suffix("")
        candidates = [path, *(f"{stem}{suffix}" for suffix in _SUFFIXES)]
        name = next((name for name in candidates if name in names), None)
        if not label:
            problems.add(MALFORMED_LINE, f"{tags}: line {number}")
        elif name is None:
            problems.add(ABSENT_CROP, path)
        else:
            try:
                row = Word(split, fold(label.strip()), name)
                crops.append(Crop(row, read_crop(io.BytesIO(read(name)))))
            except WordsError:
                problems.add(BAD_LABEL, f"{path} {label.strip()}")
            except (PhotoError, OSError, *DAMAGED_ARCHIVE):
                problems.add(BAD_CROP, name)
    return crops


def _validation_paths(paths: list[str], count: int) -> set[str]:
    """Choose the crops for validation: whole photos, in a fixed random order.

    The crops of a photo look alike; their names begin with its number. A photo with
    more crops than are still needed is skipped, unless no photo has fewer.
    """
    photos: dict[str, list[str]] = {}
    for path in sorted(paths):
        photo = PurePosixPath(path).stem.rpartition("_")[0]
        photos.setdefault(photo or path, []).append(path)
    names = sorted(photos)
    np.random.default_rng(_SEED).shuffle(names)
    chosen: list[str] = []
    for name in names:
        if len(chosen) + len(photos[name]) <= count:
            chosen += photos[name]
    left = [path for name in names for path in photos[name] if path not in chosen]
    return {*chosen, *left[: count - len(chosen)]}
