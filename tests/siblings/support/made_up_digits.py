"""Digits that can be learnt in seconds, as arrays, idx files and prepared folders."""

import gzip
import struct

import numpy as np

from show_attend_tell.config.settings import experiment_from_dict
from show_attend_tell.siblings.digits.data import Digits, write_digits

_DATA = {"name": "made-up", "source": "mnist", "validation": 16}
_TRAINING = {"epochs": 3, "batch_size": 8, "jit_compile": False}
_WIDTHS = {"width": 16, "glimpse_width": 8, "location_width": 8}
_TABLES = {
    "data": _DATA,
    "training": _TRAINING,
    "glimpse": {"patch": 8, "scales": 2, "glimpses": 2, **_WIDTHS},
}
_DRAWING = {
    "data": _DATA,
    "training": {**_TRAINING, "warmup_steps": 0, "learning_rate": 0.01},
    "draw": {"steps": 2, "read": 3, "write": 4, "latent": 5, "width": 16},
}


def digits(count, seed=0):
    """Return digits: class k is a bar in column 2 k + 4, with noise."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(count) % 10).astype(np.uint8)
    images = rng.integers(0, 40, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[6:22, 2 * label + 4 : 2 * label + 7] = 255
    return Digits(images, labels)


def prepare(work, count=64, test=0):
    """Write a prepared folder."""
    splits = {"train": digits(count)}
    if test:
        splits["test"] = digits(test, seed=1)
    write_digits(work / "made-up", splits)
    return work


def experiment(name="tiny", **changes):
    """Return a small experiment; keywords are tables of changed settings."""
    tables = {key: {**table, **changes.get(key, {})} for key, table in _TABLES.items()}
    for other in changes.keys() & {"classifier", "draw"}:
        tables[other] = changes[other]
        del tables["glimpse"]
    return experiment_from_dict({"name": name, "task": "classify", **tables})


def drawing_experiment(name="tiny", **changes):
    """Return a small experiment that generates; see :func:`experiment`."""
    tables = {key: {**table, **changes.get(key, {})} for key, table in _DRAWING.items()}
    return experiment_from_dict({"name": name, "task": "generate", **tables})


def idx(values):
    """Return the bytes of an idx file."""
    header = struct.pack(">HBB", 0, 8, values.ndim)
    return header + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_idx(folder, name, own, compress=False):
    """Write the two idx files of digits."""
    kinds = {"images-idx3-ubyte": own.images, "labels-idx1-ubyte": own.labels}
    for kind, values in kinds.items():
        content = gzip.compress(idx(values)) if compress else idx(values)
        (folder / f"{name}-{kind}{'.gz' * compress}").write_bytes(content)
