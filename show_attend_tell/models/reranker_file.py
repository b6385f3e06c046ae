"""Read and write the file of a reranker: NumPy arrays without pickle, and JSON.

The file of ``model.keras`` is ``model.reranker.npz`` in the same folder. The basis and
the landmarks have 8 bits per number. The coefficients have 16: a prediction is the
difference of large sums of them, which 8 bits would lose.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.models.encoder.quantised_weights import (
    SCALE,
    dequantise,
    quantise,
)
from show_attend_tell.models.reranker import ORDERS, NgramVectors, Reranker
from show_attend_tell.runtime.array_file import DAMAGED, read_arrays
from show_attend_tell.runtime.errors import ModelFileError, one_line
from show_attend_tell.runtime.files import atomic_path

FORMAT = 2
_MOST_BYTES = 1_000_000_000  # unpacked
NONE = "none"  # instead of a file: rank without a reranker
_REMEDY = "write it again by `show-attend-tell fit-reranker`"
_PLAIN = {
    "ngrams": np.int32,
    "idf": np.float32,
    "mean": np.float32,
    "deviation": np.float32,
    "coefficients": np.float16,
}
# Of 8 bits: each n-gram of the basis has a scale, and each column of the landmarks.
_SCALED = ("basis", "landmarks")
_ARRAYS = (
    _PLAIN
    | dict.fromkeys(_SCALED, np.int8)
    | {name + SCALE: np.float32 for name in _SCALED}
)


def save_reranker(reranker: Reranker, path: str | Path) -> None:
    """Write a reranker atomically, as a ``.npz`` file."""
    ngrams = np.zeros((len(reranker.vectors.ngrams), ORDERS), np.int32)  # 0: padding
    for row, ngram in zip(ngrams, reranker.vectors.ngrams, strict=True):
        row[: len(ngram)] = ngram
    values = {"ngrams": ngrams, "idf": reranker.vectors.idf}
    arrays = {
        name: np.asarray(values.get(name, getattr(reranker, name, None)), kind)
        for name, kind in _PLAIN.items()
    }
    for name in _SCALED:
        matrix = np.asarray(getattr(reranker, name), np.float32)
        q, scale = quantise(matrix.T if name == "basis" else matrix)
        arrays |= {name: q.T if name == "basis" else q, name + SCALE: scale}
    about = {
        "format": FORMAT,
        "gamma": reranker.gamma,
        "vocabulary": reranker.vocabulary,
        "encoder": reranker.encoder_identity,
    }
    with atomic_path(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, about=json.dumps(about), **arrays)


def load_reranker(path: str | Path) -> Reranker:
    """Read a reranker.

    Raises:
        ModelFileError: the file is absent, damaged, or no reranker.
    """
    path = Path(path)
    try:
        arrays, about = read_arrays(path, _ARRAYS, FORMAT, _MOST_BYTES)
        fault = _layout_fault(arrays, about)
        if fault is None:
            return _reranker(arrays, about, path)
    except DAMAGED as error:
        fault = one_line(error)
    raise ModelFileError(
        f"{path}: not a reranker of this package ({fault}); {_REMEDY}"
    ) from None


def reranker_beside(model: str | Path) -> Path:
    """Return the path of a model's reranker."""
    return Path(model).with_suffix(".reranker.npz")


def find_reranker(
    file: str | Path | None, models: Sequence[str | Path]
) -> Reranker | None:
    """Read the reranker of a model, or return None if it has none.

    Args:
        file: a reranker's file, or :data:`NONE`; by default the file beside a single
            model, if it exists.
        models: the model files.

    Raises:
        ModelFileError: see :func:`load_reranker`.
    """
    if file is None and len(models) == 1 and reranker_beside(models[0]).exists():
        file = reranker_beside(models[0])
    if file is None or str(file) == NONE:
        return None
    return load_reranker(file)


def _layout_fault(arrays: dict[str, np.ndarray], about: dict) -> str | None:
    """Return a difference to the documented layout, or None."""
    for name, kind in _ARRAYS.items():
        if arrays[name].dtype != kind:
            return f"`{name}` has the type {arrays[name].dtype}"
    gamma, words = about.get("gamma"), about.get("vocabulary")
    if not isinstance(gamma, float) or not (math.isfinite(gamma) and gamma > 0):
        return "`gamma` must be a positive number"
    if not (isinstance(words, list) and all(isinstance(w, str) for w in words)):
        return "`vocabulary` must be words"
    if not isinstance(about.get("encoder"), dict):
        return "`encoder` must be an object"
    ids = arrays["ngrams"]
    if not ((ids >= 0) & (ids < len(words))).all():
        return "`ngrams` must be ids of words"
    (G,), (D,) = arrays["idf"].shape, arrays["mean"].shape
    M, r = arrays["coefficients"].shape
    shapes = {
        "ngrams": (G, ORDERS),
        "basis": (G, r),
        "deviation": (D,),
        "landmarks": (M, D),
        "basis_scale": (G,),
        "landmarks_scale": (D,),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            return f"`{name}` must be {shape}, and is {arrays[name].shape}"
    if not M * r:
        return "it has no coefficients"
    if any(not np.isfinite(value).all() for value in arrays.values()):
        return "its numbers must be finite"
    if not (arrays["deviation"] > 0).all():
        return "deviations must be positive"
    return None


def _reranker(arrays: dict[str, np.ndarray], about: dict, path: Path) -> Reranker:
    ngrams = [tuple(w for w in row if w) for row in arrays["ngrams"].tolist()]
    basis = dequantise(arrays["basis"].T, arrays["basis_scale"]).T
    landmarks = dequantise(arrays["landmarks"], arrays["landmarks_scale"])
    coefficients = arrays["coefficients"].astype(np.float32)
    return Reranker(
        NgramVectors(ngrams, arrays["idf"]),
        *(basis, arrays["mean"], arrays["deviation"], landmarks, coefficients),
        about["gamma"],
        tuple(about["vocabulary"]),
        about["encoder"],
        path,
    )
