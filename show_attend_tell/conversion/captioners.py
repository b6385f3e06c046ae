"""Convert captioners of version 0.3, with the reranker and the calibration beside them.

Weights keep their bits: 8 bits with scales, float16, or float32.
"""

import hashlib
import re
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from show_attend_tell.config.captioner import SavedConfig
from show_attend_tell.conversion.archives import read_arrays
from show_attend_tell.conversion.faults import conversion_of
from show_attend_tell.conversion.hdf5_arrays import Hdf5Arrays
from show_attend_tell.conversion.keras_files import OLD_SCALE, OldModel
from show_attend_tell.reference.captioner import layout
from show_attend_tell.reference.generator import Generator
from show_attend_tell.reference.model_file import (
    CONFIDENCE,
    RERANKER,
    Part,
    parse_config,
    read_captioner,
    replace_part,
    write_captioner,
)
from show_attend_tell.reference.reranker import (
    CLASS as RERANKER_CLASS,
)
from show_attend_tell.reference.reranker import (
    find_reranker,
    load_reranker,
)
from show_attend_tell.reference.tensor_file import (
    SCALE,
    current_path,
    write_tensors,
)
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.files import atomic_path

# The module of the class before version 0.3, which shipped one such file itself:
# flickr8k_lstm.keras, named by its SHA-256.
_OLDER_MODULE = "show_attend_tell.captioner"
_SHIPPED = "e6213869a0becdeceb53735df41537b13609bd1a69a3a5ee35ad0507d8ec690c"
_RERANKER_ARRAYS = (
    "ngrams",
    "idf",
    "mean",
    "deviation",
    "coefficients",
    "basis",
    "basis_scale",
    "landmarks",
    "landmarks_scale",
)
_RERANKER_FORMAT = 2


def convert_captioner(model: OldModel, source: Path, target: Path) -> list[str]:
    """Write a captioner of version 0.3 as a file of this version.

    Args:
        model: the captioner, opened from `source`.
        source: its file.
        target: path of the new file.

    Returns:
        What the user should know, a line each.

    Raises:
        ModelFileError: a file is damaged, or older.
        OSError: the new file cannot be written.
    """
    beside = source.with_suffix(f".{RERANKER}.npz")
    calibration = source.with_suffix(f".{CONFIDENCE}.npz")
    # Under the final name there is only a file that this version has read.
    with atomic_path(target) as temporary:
        with conversion_of(source, temporary):
            _require_version(model, source)
            values = _values_of(model)
            weights = _read_weights(model.arrays, values)
            write_captioner(temporary, values, weights)
            captioner = read_captioner(temporary)  # verifies it
        if beside.exists():
            with conversion_of(beside, temporary):
                replace_part(temporary, RERANKER, _read_reranker(beside))
                reranker = find_reranker(None, [temporary])
                Generator([captioner], reranker=reranker)  # verifies it
    if calibration.exists():
        return [
            f"{calibration}: left out, as the confidence rests on other statistics "
            f"now; run `show-attend-tell calibrate --model {target}`"
        ]
    return []


def _require_version(model: OldModel, source: Path) -> None:
    """Raise a ValueError if an older version saved a model."""
    if model.module != _OLDER_MODULE:
        return
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _SHIPPED:
        raise ValueError("a version before 0.3 saved it")


def _values_of(model: OldModel) -> dict[str, Any]:
    """Return the settings of a captioner that this version knows."""
    if model.values.get("convolutions"):
        raise ValueError("`convolutions` must be []; version 0.3 reads them")
    # Keras' own values, such as the model's name, and those of 0.3 alone are left out.
    known = {field.name for field in fields(SavedConfig)}
    values = {name: value for name, value in model.values.items() if name in known}
    identity = values.get("encoder_identity")
    if isinstance(identity, dict) and isinstance(identity.get("weights"), str):
        name = identity["weights"]
        # The weights beside the model are converted too, and then end with
        # .safetensors.
        if Path(name).suffix == ".h5":
            name = current_path(Path(name)).name
        values["encoder_identity"] = {**identity, "weights": name}
    return values


def _read_weights(arrays: Hdf5Arrays, values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the weights as they are stored, with their scales."""
    weights: dict[str, np.ndarray] = {}
    # In the order of Keras, in which `places` counts them.
    shapes = dict(layout(parse_config(values)))
    for name, path in places(list(shapes)).items():
        weights[name] = arrays.read(path, shapes[name])
        if weights[name].dtype == np.int8:
            # One scale for each output channel, the last axis.
            scale = arrays.read(path + OLD_SCALE, shapes[name][-1:])
            weights[name + SCALE] = scale.astype(np.float32)
    return weights


def places(names: list[str]) -> dict[str, str]:
    """Return the path of each weight in a file of Keras, by its name.

    Keras numbers the weights of each layer.
    """
    counts: Counter[str] = Counter()
    found = {}
    for name in names:
        group = _group_of(name)
        found[name] = f"{group}vars/{counts[group]}"
        counts[group] += 1
    return found


def _group_of(name: str) -> str:
    """Return the group of a weight's layer in a file of Keras."""
    if name == "annotation_scale":
        return ""
    if name == "baseline":
        return "hard_attention/"
    layer, _, _ = name.rpartition("/")
    if layer in ("", "decoder"):
        return "decoder/"
    numbered = re.fullmatch(r"(encoder_)?layer_(\d+)(?:_(\w+))?", layer)
    if numbered is None:
        return f"decoder/{layer}/"
    encoder, number, part = numbered.groups()
    stack = "encoder_layers" if encoder else "decoder_layers"
    # Keras names the layers of a list by their class: the second is
    # transformer_layer_1.
    suffix = f"_{int(number) - 1}" if int(number) > 1 else ""
    return f"decoder/{stack}/transformer_layer{suffix}/" + (f"{part}/" if part else "")


def _read_reranker(path: Path) -> Part:
    """Return the reranker in a ``.npz`` file."""
    arrays, about = read_arrays(path, _RERANKER_ARRAYS, _RERANKER_FORMAT)
    # basis_scale and landmarks_scale.
    names = {name: name.replace(OLD_SCALE, SCALE) for name in arrays}
    kept = {name: about.get(name) for name in ("gamma", "vocabulary", "encoder")}
    return Part(kept, {names[name]: values for name, values in arrays.items()})


def convert_reranker(source: Path, target: Path) -> None:
    """Write a reranker of version 0.3 as a file of this version.

    Raises:
        ModelFileError: the file is damaged, or older.
        OSError: the new file cannot be written.
    """
    with atomic_path(target) as temporary, conversion_of(source, temporary):
        part = _read_reranker(source)
        arrays = {f"{RERANKER}/{name}": values for name, values in part.arrays.items()}
        write_tensors(
            temporary, {"class": RERANKER_CLASS, RERANKER: part.about}, arrays
        )
        load_reranker(temporary)  # verifies it


def require_not_alone(path: Path) -> None:
    """Raise a ModelFileError that names the model of a calibration."""
    model = path.name.replace(f".{CONFIDENCE}.npz", ".keras")
    raise ModelFileError(
        f"{path}: a calibration is part of its model; run `show-attend-tell convert "
        f"{path.with_name(model)}`"
    )
