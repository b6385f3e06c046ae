"""Read the word crops of IIIT5K, from their zip archives or an unpacked folder.

``train.tags`` has a line "path label" for each crop, ``test.tags`` for the held-back
ones. The tags name .png files where the data set has .jpg files.
"""

import contextlib
import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from data_prep.locate import DAMAGED_ARCHIVE, is_safe
from data_prep.problems import MALFORMED_LINE, Problems
from show_attend_tell.data.characters import fold
from show_attend_tell.data.word_crops import read_crop
from show_attend_tell.data.words import Word
from show_attend_tell.runtime.errors import DataError, PhotoError, WordsError, one_line
from show_attend_tell.runtime.regular_files import read_text_bytes, require_within

BAD_LABEL = "label with unknown characters or too many of them"
BAD_CROP = "crop that cannot be read"
ABSENT_CROP = "missing crop"
_SUFFIXES = (".jpg", ".jpeg", ".png")
_MOST_BYTES = 20_000_000  # of a crop, or of the tags
_SEED = 0  # of the order in which photos become validation photos


@dataclass(frozen=True)
class Crop:
    """A crop with the row of the manifest."""

    row: Word
    image: np.ndarray  # (32, 100) uint8


@dataclass(frozen=True)
class _Source:
    """A folder or an archive with crops.

    Attributes:
        place: its path, named in messages.
        names: paths of the files in it, with slashes.
        read: returns the content of one of them.
    """

    place: Path
    names: frozenset[str]
    read: Callable[[str], bytes]


def read_iiit5k(data: str | Path, validation: int) -> tuple[list[Crop], Problems]:
    """Read the training crops, and the test crops where they are present.

    Args:
        data: a folder with archives or unpacked files, or an archive.
        validation: number of training crops that are set apart as ``val``. All crops
            of a photo are in the same split.

    Returns:
        The crops, those of ``train`` first, then ``val`` and ``test``; and the
        problems of crops that are skipped.

    Raises:
        DataError: there are no training crops or too few, or an archive is damaged.
    """
    data, problems = Path(data), Problems()
    found: dict[str, list[Crop]] = {"train": [], "test": []}
    for source in _sources(data):
        with source as opened:
            for split, crops in found.items():
                if not crops:
                    crops += _read_split(opened, split, problems)
    train = found["train"]
    if not train:
        raise DataError(
            f"{data}: must have train.tags with its crops, or IIIT5K_train.zip. "
            f"Received: none{_first(problems)}; name the folder of IIIT5K's files "
            "with --data"
        )
    if len(train) <= validation:
        raise DataError(
            f"{data}: data.validation must be less than the {len(train)} training "
            f"crops. Received: {validation}; lower it"
        )
    apart = _validation_paths([crop.row.path for crop in train], validation)
    kept = [crop for crop in train if crop.row.path not in apart]
    held = [
        Crop(Word("val", crop.row.word, crop.row.path), crop.image)
        for crop in train
        if crop.row.path in apart
    ]
    return [*kept, *held, *found["test"]], problems


def _first(problems: Problems) -> str:
    """Return the first problem, to be added to a message."""
    lines = problems.summary()
    return f" ({lines[0]})" if lines else ""


def _sources(data: Path) -> Iterator[contextlib.AbstractContextManager[_Source]]:
    """Yield the folder, its subfolders that have tags, and its archives."""
    if not data.exists():
        raise DataError(f"{data}: no such folder; name the folder of IIIT5K's files")
    if data.is_file():
        yield _archive(data)
        return
    tags = sorted([*data.glob("*.tags"), *data.glob("*/*.tags")])
    for folder in dict.fromkeys(path.parent for path in tags):
        yield _folder(folder)
    for path in sorted(data.glob("*.zip")):
        yield _archive(path)


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[_Source]:
    files = (path for path in folder.rglob("*") if path.is_file())
    names = frozenset(path.relative_to(folder).as_posix() for path in files)
    yield _Source(
        folder, names, lambda name: read_text_bytes(folder / name, _MOST_BYTES)
    )


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[_Source]:
    """Yield an archive; a folder around all of its files is left out of the names."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {m.filename: m for m in archive.infolist() if is_safe(m)}
            tags = [name for name in members if name.endswith(".tags")]
            base = "".join(
                f"{part}/" for part in PurePosixPath(min(tags, default="")).parts[:-1]
            )
            names = frozenset(
                n.removeprefix(base) for n in members if n.startswith(base)
            )

            def read(name: str) -> bytes:
                with archive.open(members[base + name]) as file:
                    content = file.read(_MOST_BYTES + 1)
                require_within(len(content), _MOST_BYTES)
                return content

            yield _Source(path, names, read)
    except (*DAMAGED_ARCHIVE, OSError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path}: cannot be read as a zip archive ({one_line(error)}); get the "
            "file again"
        ) from None


def _read_split(source: _Source, split: str, problems: Problems) -> list[Crop]:
    """Return the crops of a split, none if the source has no tags of it."""
    tags = f"{split}.tags"
    if tags not in source.names:
        return []
    try:
        text = source.read(tags).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(
            f"{source.place}: {tags} must be UTF-8 text; get the file again"
        ) from None
    crops = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        path, _, label = line.strip().partition(" ")
        if not label:
            problems.add(MALFORMED_LINE, f"{tags}: line {number}")
            continue
        crop = _read_one(source, split, path, label.strip(), problems)
        crops += [] if crop is None else [crop]
    return crops


def _read_one(
    source: _Source, split: str, path: str, label: str, problems: Problems
) -> Crop | None:
    """Return the crop of a line of the tags, None with a problem."""
    stem = str(PurePosixPath(path).with_suffix(""))
    names = [name for name in (path, *(stem + s for s in _SUFFIXES))]
    name = next((name for name in names if name in source.names), None)
    if name is None:
        problems.add(ABSENT_CROP, path)
        return None
    try:
        row = Word(split, fold(label), name)
        return Crop(row, read_crop(io.BytesIO(source.read(name))))
    except WordsError:
        problems.add(BAD_LABEL, f"{path} {label}")
    except (PhotoError, OSError, *DAMAGED_ARCHIVE):
        problems.add(BAD_CROP, name)
    return None


def _validation_paths(paths: list[str], count: int) -> set[str]:
    """Return the paths of validation crops: whole photos in a fixed random order.

    The crops of a photo, whose names begin with its number, look alike. A photo with
    more crops than are still needed is skipped; if all are, its first crops are used.
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
