"""Save the calibration of a model beside it, and read it again.

The file of ``model.keras`` is ``model.confidence.npz``: NumPy arrays without pickle,
and ``about``, JSON with the digest of the model that it belongs to.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np

from show_attend_tell.inference.confidence import (
    FAMILIARITY,
    QUALITY,
    STATISTICS,
    Calibration,
    PhotoSpace,
)
from show_attend_tell.models.generator import Generator
from show_attend_tell.runtime.array_file import DAMAGED, read_arrays
from show_attend_tell.runtime.errors import CalibrationError, CaptionError, one_line
from show_attend_tell.runtime.files import atomic_path

FORMAT = 1
_SMALL = np.float16  # of the two large matrices; the others are float32
_MOST_BYTES = 64_000_000  # unpacked
_REMEDY = "run `show-attend-tell calibrate` for this model, or remove the file"
_SPACE = ("mean", "components", "variances", "layout", "words", "shares")
_ARRAYS = (*_SPACE, "word_weights", "centre", "scale", "familiarity", "quality")


def calibration_path(model: str | Path) -> Path:
    """Return the path of a model's calibration."""
    return Path(model).with_suffix(".confidence.npz")


def model_digest(captioner: Generator) -> str:
    """Return the SHA-256 of a captioner's vocabulary and weights, in hexadecimal."""
    digest = hashlib.sha256("\n".join(captioner.vocabulary.words).encode())
    for weight in captioner.weights:
        digest.update(np.ascontiguousarray(np.asarray(weight, np.float32)))
    return digest.hexdigest()


def save_calibration(
    calibration: Calibration, captioner: Generator, model: str | Path, measured: dict
) -> Path:
    """Write the calibration of a model atomically; return its path.

    Args:
        calibration: the calibration.
        captioner: the generator of one model and its reranker.
        model: path of the model, beside which the file is written.
        measured: values for JSON that are kept with it.
    """
    space = {f.name: getattr(calibration.space, f.name) for f in _fields(PhotoSpace)}
    rest = {f.name: getattr(calibration, f.name) for f in _fields(Calibration)}
    about = {
        "format": FORMAT,
        "model": model_digest(captioner),
        "reranker": _reranker_digest(captioner),
        "statistics": STATISTICS,
        "measured": measured,
    }
    arrays = {name: np.float32(value) for name, value in (space | rest).items()}
    arrays["words"] = space["words"].astype(np.int32)
    for name in ("components", "word_weights"):
        arrays[name] = space[name].astype(_SMALL)
    path = calibration_path(model)
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, about=json.dumps(about), **arrays)
    return path


def find_calibration(captioner: Generator, model: str | Path) -> Calibration | None:
    """Read the calibration beside a model.

    Returns:
        None if there is no file, or if its captions were ranked in another way: by
        another reranker, or one of both by none.

    Raises:
        CalibrationError: the file is damaged, or belongs to another model.
    """
    path = calibration_path(model)
    if not path.exists():
        return None
    try:
        arrays, about = _read(path)
        fault = _layout_fault(arrays, about, captioner)
    except DAMAGED as error:
        fault = one_line(error)
    if fault:
        raise CalibrationError(
            f"{path}: not a calibration of this package ({fault}); {_REMEDY}"
        )
    if about.get("model") != model_digest(captioner):
        raise CalibrationError(
            f"{path}: must be the calibration of {Path(model).name}. Received: that "
            f"of another model; {_REMEDY}"
        )
    if about.get("reranker") != _reranker_digest(captioner):
        return None
    space = {name: arrays[name] for name in (*_SPACE, "word_weights")}
    rest = {name: arrays[name] for name in _ARRAYS if name not in space}
    return Calibration(PhotoSpace(captioner.grid, **space), **rest)


def _reranker_digest(captioner: Generator) -> str | None:
    """Return the SHA-256 of a captioner's reranker; None without one."""
    reranker = captioner.reranker
    return None if reranker is None else reranker.digest()


def _fields(kind: type) -> list[dataclasses.Field]:
    """Return the fields that are stored as arrays."""
    return [f for f in dataclasses.fields(kind) if f.name not in ("grid", "space")]


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict]:
    """Return the arrays as float64 or integers, and ``about``."""
    arrays, about = read_arrays(path, _ARRAYS, FORMAT, _MOST_BYTES)
    for name, value in arrays.items():
        kind = np.int64 if name == "words" else np.float64
        if value.dtype.kind not in ("i" if name == "words" else "f"):
            raise ValueError(f"`{name}` has the type {value.dtype}")
        arrays[name] = value.astype(kind)
    return arrays, about


def _layout_fault(
    arrays: dict[str, np.ndarray], about: dict, captioner: Generator
) -> str | None:
    """Return a difference to the documented layout, or None."""
    if about.get("statistics") != list(STATISTICS):
        return "its statistics are those of another version"
    D, k, V = captioner.annotation_width, arrays["variances"].size, arrays["words"].size
    shapes = {
        "mean": (3 * D,),
        "components": (3 * D, k),
        "variances": (k,),
        "layout": (D,),
        "words": (V,),
        "shares": (V,),
        "word_weights": (k, V),
        "centre": (len(STATISTICS),),
        "scale": (len(STATISTICS),),
        "familiarity": (len(FAMILIARITY) + 1,),
        "quality": (len(QUALITY) + 1,),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            return f"`{name}` must be {shape}, and is {arrays[name].shape}"
        if not np.isfinite(arrays[name]).all():
            return f"`{name}` must be finite"
    positive = all((arrays[n] > 0).all() for n in ("variances", "shares", "scale"))
    if not (k and V and positive):
        return "variances, shares and scales must be positive"
    words = arrays["words"]
    if words[0] < 0 or (np.diff(words) <= 0).any():
        return "`words` must be ascending ids"
    return None


def require_valid_minimum(
    min_confidence: float | None, calibration: Calibration | None, model: object
) -> None:
    """Validate a lowest confidence of captions; None is always valid.

    Args:
        min_confidence: the lowest confidence.
        calibration: that of the model, None if it has none.
        model: name of the model, for messages.

    Raises:
        CaptionError: it is not in [0, 1], or the model has no calibration.
    """
    if min_confidence is None:
        return
    if not 0 <= min_confidence <= 1:
        raise CaptionError(
            f"`min_confidence` must be from 0 to 1. Received: {min_confidence}; choose "
            "a probability"
        )
    if calibration is None:
        raise CaptionError(
            f"`min_confidence` needs a calibration of the model. Received: {model}, "
            "which has none for captions ranked so; run `show-attend-tell calibrate`, "
            "with their reranker as <model>.reranker.npz beside the model"
        )
