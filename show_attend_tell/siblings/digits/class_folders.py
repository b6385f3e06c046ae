"""Read the user's pictures: a folder of pictures for each class.

``DATA/<class>/*.png`` is split by a hash of the names: at least one picture of each
class validates and at least one trains. ``DATA/train/<class>/*.png``, with ``val`` and
``test`` beside ``train``, has splits of its own. Pictures become grey and square: their
longer side has ``data.canvas`` pixels, and the border's median brightness fills the
rest.

``pictures.npz`` has ``<split>_images``, (N, H, H) uint8, and ``<split>_labels``, (N,)
uint16, of each split, and ``names``, the classes.
"""

import hashlib
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from data_prep.data_folder import find_files
from data_prep.preparation import Preparation, Prepared, Problems, printable
from data_prep.sources.tables import SPLITS, hash_order, split_by_hash
from show_attend_tell.config.settings import AnyExperiment
from show_attend_tell.data.preprocessing import is_photo, load_photo
from show_attend_tell.runtime.errors import DataError, PhotoError, quote
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.untrusted import reading
from show_attend_tell.siblings.common.arrays import open_archive

FILE = "pictures.npz"
MOST_CLASSES = 1000
_FOLDERS = {name: split for name, split in SPLITS.items() if split != "none"}
_SPLITS = ("train", "val", "test")
_UNREADABLE = "picture that cannot be read"
_OUTSIDE = "picture outside of the folders of classes"
_UNKNOWN = "picture of a class without training pictures"


class Pictures(NamedTuple):
    """Pictures of a split with their classes."""

    images: np.ndarray  # (N, H, H) uint8
    labels: np.ndarray  # (N,) uint16, positions in `names`
    names: tuple[str, ...]  # the classes

    def digest(self) -> str:
        """Return a digest of pictures, labels and classes."""
        digest = hashlib.sha256(np.ascontiguousarray(self.images).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        # A forged file may have names that UTF-8 cannot encode.
        digest.update("\n".join(self.names).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


class _Picture(NamedTuple):
    """A file of a class."""

    path: Path
    name: str  # relative to the folder
    label: str
    split: str


def prepare_class_folders(preparation: Preparation) -> Prepared:
    """Write the pictures of a folder to one file.

    Raises:
        DataError: there are fewer than two classes, a class has too few pictures, or
            pictures have problems that are refused.
    """
    data = preparation.require_data().absolute()
    problems = Problems()
    files = _find_pictures(data, preparation.folder, problems)
    listed = _with_splits(data, files, problems)
    if preparation.limit is not None:
        whole = listed
        listed = _limited(whole, preparation.limit)
        if len(_classes_of(listed)) < 2 <= len(_classes_of(whole)):
            raise DataError(
                "`limit` must leave training pictures of two classes. Received: "
                f"{preparation.limit}; raise it"
            )
    names = _require_classes(data, listed, problems)
    # Only classes of training pictures can be learned.
    for picture in listed:
        if picture.label not in names:
            problems.add(_UNKNOWN, picture.name)
    listed = [picture for picture in listed if picture.label in names]
    side = preparation.experiment.data.canvas
    images: dict[str, list[np.ndarray]] = {split: [] for split in _SPLITS}
    labels: dict[str, list[int]] = {split: [] for split in _SPLITS}
    title = "pictures"
    with progress_bar(len(listed), "picture", title, shown=preparation.progress) as bar:
        for picture in listed:
            bar.update()
            try:
                image = square_picture(load_photo(picture.path), side)
            except PhotoError:
                problems.add(_UNREADABLE, picture.name)
                continue
            images[picture.split].append(image)
            labels[picture.split].append(names.index(picture.label))
    preparation.record(problems)
    # Again, because files that cannot be read are known only now.
    _require_both(data, labels, names, problems)
    arrays: dict[str, Any] = {"names": np.array(names)}
    for split in _SPLITS:
        if images[split]:
            arrays[f"{split}_images"] = np.stack(images[split])
            # 16 bits for up to 1,000 classes.
            arrays[f"{split}_labels"] = np.array(labels[split], np.uint16)
    with atomic_path(preparation.folder / FILE) as temporary:
        np.savez(temporary, **arrays)
    counts = {split: {"pictures": len(labels[split])} for split in _SPLITS}
    counts = {split: count for split, count in counts.items() if count["pictures"]}
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    facts = [f"{len(names)} classes: {shown}"]
    return Prepared(preparation.folder, counts, facts, problems)


def _find_pictures(data: Path, prepared: Path, problems: Problems) -> list[Path]:
    """Return the pictures below a folder."""
    if not data.is_dir():
        raise DataError(f"{data}: no such folder; name the folder of the classes")
    with reading(data, DataError, "make it readable, or name another folder"):
        files = find_files(data, prepared, problems)
    return [path for path in files if is_photo(path)]


def _with_splits(data: Path, files: list[Path], problems: Problems) -> list[_Picture]:
    """Return pictures with their class and split, mixed by a hash of their names.

    Raises:
        DataError: a class has too few pictures to be divided.
    """
    paths = {path.relative_to(data).as_posix(): path for path in files}
    tops = {name.split("/")[0].lower() for name in paths if "/" in name}
    # Only if all folders are named as splits: beside `cat`, `train` is a class.
    split_folders = bool(tops) and tops <= _FOLDERS.keys()
    depth = 2 if split_folders else 1
    pictures = []
    for name in hash_order(paths):
        *folders, _ = name.split("/")
        if len(folders) < depth:
            problems.add(_OUTSIDE, name)
            continue
        split = _FOLDERS[folders[0].lower()] if split_folders else ""
        label = _class_name(folders[depth - 1])
        pictures.append(_Picture(paths[name], name, label, split))
    if not split_folders:
        problems.notes.append(
            "80% of the pictures train, 10% validate, 10% test, by a hash of their "
            "names, and at least one of each class trains and one validates"
        )
        return _divided(data, pictures, {name: split_by_hash(name) for name in paths})
    if any(picture.split == "val" for picture in pictures):
        return pictures
    problems.notes.append(
        "no folder val: a tenth of train validates, at least one of each class"
    )
    training = [picture for picture in pictures if picture.split == "train"]
    validates = {
        name: "val" if split_by_hash(name) == "val" else "train" for name in paths
    }
    held_out = [picture for picture in pictures if picture.split != "train"]
    return [*_divided(data, training, validates), *held_out]


def _class_name(folder: str) -> str:
    """Return the name of a folder's class, as a model's file can hold it."""
    # macOS writes an accent as a character of its own: `train` and `val` of different
    # machines must have the same classes. The name of a folder need not be UTF-8.
    return printable(unicodedata.normalize("NFC", folder))


def _divided(
    data: Path, pictures: list[_Picture], splits: dict[str, str]
) -> list[_Picture]:
    """Give pictures their splits; the first of each class validates, the last trains.

    Raises:
        DataError: a class has a single picture.
    """
    counts = Counter(picture.label for picture in pictures)
    single = sorted(label for label, count in counts.items() if count < 2)
    if single:
        raise DataError(
            f"{data}: each class must have two pictures or more, to train and to "
            f"validate with. Received: one of {quote(single[0])}"
            f"{f' and {len(single) - 1} more' if len(single) > 1 else ''}; add "
            "pictures, or remove the folder"
        )
    seen: Counter[str] = Counter()
    divided = []
    for picture in pictures:
        seen[picture.label] += 1
        split = splits[picture.name]
        if seen[picture.label] == 1:
            split = "val"
        elif seen[picture.label] == counts[picture.label]:
            split = "train"
        divided.append(picture._replace(split=split))
    return divided


def _limited(pictures: list[_Picture], limit: int) -> list[_Picture]:
    """Return the first pictures of each split, with the classes in turn."""
    turns: Counter[tuple[str, str]] = Counter()
    ranked = []
    for picture in pictures:
        of_class = picture.split, picture.label
        turns[of_class] += 1
        ranked.append((turns[of_class], picture.label, picture))
    kept: Counter[str] = Counter()
    first = []
    for _, _, picture in sorted(ranked, key=lambda each: each[:2]):
        kept[picture.split] += 1
        if kept[picture.split] <= limit:
            first.append(picture)
    return first


def _require_classes(
    data: Path, pictures: list[_Picture], problems: Problems
) -> tuple[str, ...]:
    """Return the classes of the training pictures, sorted.

    Raises:
        DataError: there are fewer than two, or too many.
    """
    names = _classes_of(pictures)
    if not 2 <= len(names) <= MOST_CLASSES:
        received = ", ".join(map(quote, names[:2])) if len(names) < 3 else len(names)
        skipped = "".join(f"; skipped: {line}" for line in problems.summary())
        raise DataError(
            f"{data}: must have a folder of pictures for each of 2 to {MOST_CLASSES} "
            f"classes. Received: {received or 'none'}{skipped}; name the folder above "
            "the classes"
        )
    return names


def _classes_of(pictures: list[_Picture]) -> tuple[str, ...]:
    """Return the classes of the training pictures, sorted."""
    return tuple(sorted({each.label for each in pictures if each.split == "train"}))


def _require_both(
    data: Path, labels: dict[str, list[int]], names: tuple[str, ...], problems: Problems
) -> None:
    """Raise a DataError unless each class trains, and a picture validates.

    A class that does not validate is noted.
    """
    skipped = "".join(f"; skipped: {line}" for line in problems.summary())
    absent = set(range(len(names))).difference(labels["train"])
    if absent:
        raise DataError(
            f"{data}: no training picture of {quote(names[min(absent)])} can be read"
            f"{skipped}; add pictures, or remove the folder"
        )
    if not labels["val"]:
        raise DataError(
            f"{data}: no picture to validate with can be read{skipped}; add pictures"
        )
    missing = sorted(set(range(len(names))).difference(labels["val"]))
    if missing:
        more = f" (and {len(missing) - 1} more)" if missing[1:] else ""
        problems.notes.append(
            f"no picture of {quote(names[missing[0]])}{more} validates, so that the "
            "model is chosen without it; add pictures that can be read"
        )


def square_picture(image: Image.Image, side: int) -> np.ndarray:
    """Return a picture in grey, (side, side) uint8, with its proportions kept."""
    grey = image.convert("L")
    scale = side / max(grey.size)
    width = max(1, round(scale * grey.width))
    height = max(1, round(scale * grey.height))
    small = np.asarray(grey.resize((width, height), Image.Resampling.BICUBIC))
    border = np.concatenate([small[0], small[-1], small[:, 0], small[:, -1]])
    square = np.full((side, side), np.median(border).astype(np.uint8))
    top = (side - height) // 2
    left = (side - width) // 2
    square[top : top + height, left : left + width] = small
    return square


def read_pictures(experiment: AnyExperiment, work: Path, split: str) -> Pictures:
    """Return the prepared pictures of a split.

    Raises:
        DataError: the file is absent or damaged, or has no such split, or was prepared
            with another side.
    """
    path = work / experiment.data.name / FILE
    side = experiment.data.canvas
    with (
        reading(path, DataError, "run `prepare` again", "file; run `prepare` first"),
        open_archive(path) as stored,
    ):
        if f"{split}_images" not in stored.names:
            raise DataError(
                f"{path}: has no {split} pictures; choose --split val, or prepare a "
                "folder that has them"
            )
        images = stored.read(f"{split}_images")
        labels = stored.read(f"{split}_labels")
        names = stored.read("names")
        if images.ndim != 3 or images.dtype != np.uint8:
            raise ValueError(f"its pictures have the shape {images.shape}")
        if names.dtype.kind != "U" or labels.shape != images.shape[:1]:
            raise ValueError("it must have a label for each picture, and names")
        if not len(labels) or labels.max() >= len(names):
            raise ValueError("a label has no name")
    if images.shape[1:] != (side, side):
        raise DataError(
            f"{path}: must have pictures of data.canvas = {side} pixels. Received: "
            f"{' x '.join(map(str, images.shape[1:]))}; run `prepare` again"
        )
    return Pictures(images, labels, tuple(names.tolist()))
