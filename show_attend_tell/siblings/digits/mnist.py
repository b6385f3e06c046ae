"""Read and prepare the digits of MNIST.

The files are ``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``, and
optionally ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``, the test digits.
They may be gzipped. The single file ``mnist.npz`` of Keras is read too.
"""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from data_prep.preparation import Preparation, Prepared
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.untrusted import as_value_error, reading
from show_attend_tell.siblings.common.arrays import open_archive
from show_attend_tell.siblings.digits.data import CLASSES, Digits, write_digits
from show_attend_tell.siblings.digits.settings import DIGIT

_REMEDY = "get the file again"
KERAS_FILE = "mnist.npz"
_NAMES = {"train": "train", "test": "t10k"}  # split -> start of the files' names
_KINDS = {"images": "images-idx3-ubyte", "labels": "labels-idx1-ubyte"}
_MOST = 1_000_000  # digits that a header may announce


def prepare_mnist(preparation: Preparation) -> Prepared:
    """Write the digits of an experiment to one file.

    Raises:
        DataError: a file is absent, damaged or not what its name promises.
    """
    data = preparation.require_data()
    splits = read_mnist(data)
    counts = {split: len(digits.labels) for split, digits in splits.items()}
    validation = preparation.experiment.data.validation
    if counts["train"] <= validation:
        raise DataError(
            f"{data}: data.validation must be less than the {counts['train']} training "
            f"digits. Received: {validation}; lower it"
        )
    if preparation.limit is not None:
        splits = _limited(splits, preparation.limit, validation)
        counts = {split: len(digits.labels) for split, digits in splits.items()}
    write_digits(preparation.folder, splits)
    held_back = {"train": counts.pop("train") - validation, "val": validation}
    fact = "the validation digits are the last ones of the training files"
    digits = {split: {"digits": count} for split, count in (held_back | counts).items()}
    return Prepared(preparation.folder, digits, [fact])


def _limited(
    splits: dict[str, Digits], limit: int, validation: int
) -> dict[str, Digits]:
    """Return the first digits of each split; the validation digits stay the last."""
    train = splits["train"]
    first = range(min(limit, len(train.labels) - validation))
    last = range(len(train.labels) - validation, len(train.labels))
    chosen = {"train": [*first, *last]}
    if "test" in splits:
        chosen["test"] = [*range(min(limit, len(splits["test"].labels)))]
    return {
        split: Digits(splits[split].images[rows], splits[split].labels[rows])
        for split, rows in chosen.items()
    }


def read_mnist(data: Path) -> dict[str, Digits]:
    """Return the digits of each split whose files are in a folder.

    Raises:
        DataError: the training digits are absent, or a file is damaged.
    """
    if not data.is_dir():
        raise DataError(f"{data}: no such folder; name the folder of MNIST's files")
    if (data / KERAS_FILE).is_file() and _find(data, "train", "images") is None:
        return _read_keras_file(data / KERAS_FILE)
    splits = {}
    for split in _NAMES:
        images = _find(data, split, "images")
        labels = _find(data, split, "labels")
        if split == "test" and images is None and labels is None:
            continue
        if images is None or labels is None:
            missing = _KINDS["images" if images is None else "labels"]
            raise DataError(
                f"{data}: no file {_NAMES[split]}-{missing}, also with .gz; name the "
                "folder of MNIST's files with --data"
            )
        splits[split] = _checked(data, split, read_idx(images), read_idx(labels))
    return splits


def _find(data: Path, split: str, kind: str) -> Path | None:
    name = f"{_NAMES[split]}-{_KINDS[kind]}"
    paths = (data / name, data / f"{name}.gz")
    return next((path for path in paths if path.is_file()), None)


def _checked(
    origin: Path, split: str, images: np.ndarray, labels: np.ndarray
) -> Digits:
    """Return digits after validating shapes and labels."""
    N = len(images)
    fits = images.shape == (N, DIGIT, DIGIT) and labels.shape == (N,) and N
    is_typed = images.dtype == np.uint8 and np.issubdtype(labels.dtype, np.integer)
    if not (fits and is_typed and labels.min() >= 0 and labels.max() < CLASSES):
        raise DataError(
            f"{origin}: the {split} digits must be images (N, 28, 28) of bytes with "
            f"labels (N,), integers from 0 to 9. Received: {images.shape} "
            f"{images.dtype} and {labels.shape} {labels.dtype}; get the files again"
        )
    return Digits(images, labels.astype(np.uint8))


def read_idx(path: Path) -> np.ndarray:
    """Return the bytes of an idx file, gzipped if its name ends in .gz.

    Raises:
        DataError: the file is damaged, or holds other values than bytes.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with (
        reading(path, DataError, _REMEDY),
        opener(path, "rb") as file,
        # A gzip file that ends early, a damaged one, and a header that is too short.
        as_value_error(EOFError, zlib.error, struct.error),
    ):
        # Two zero bytes, the type (8 is uint8) and the number of axes; then the length
        # of each axis. Numbers are big-endian.
        zeros, kind, dimensions = struct.unpack(">HBB", file.read(4))
        shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
        if zeros or kind != 8 or not 1 <= dimensions <= 3 or shape[0] > _MOST:
            raise ValueError("not an idx file of bytes")
        if any(side != DIGIT for side in shape[1:]):
            raise ValueError(f"its pictures have the shape {shape[1:]}")
        size = int(np.prod(shape, dtype=np.int64))
        # One byte more than announced shows a longer file without unpacking all of it.
        content = file.read(size + 1)
        if len(content) != size:
            received = "more" if len(content) > size else len(content)
            raise ValueError(f"it must hold {size} values. Received: {received}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _read_keras_file(path: Path) -> dict[str, Digits]:
    """Return the digits of the file that ``keras.datasets.mnist`` fetches."""
    with (
        reading(path, DataError, _REMEDY),
        open_archive(path) as stored,
    ):
        return {
            split: _checked(
                path, split, stored.read(f"x_{split}"), stored.read(f"y_{split}")
            )
            for split in _NAMES
            if split == "train" or f"x_{split}" in stored.names
        }
