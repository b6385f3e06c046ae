"""Read and write captioners as ``.safetensors`` files.

A captioner's file has the class ``Captioner``, its settings under ``config``, and the
weights by their names in the equations. Parts may follow, each with JSON under its own
name and arrays whose names begin with it: ``reranker/...``, which orders hypotheses
(:mod:`reference.reranker`), and ``confidence/...`` (:mod:`inference.confidence`).

This module reads the captioners of both engines. The settings state the names and the
shapes of all arrays, and nothing is allocated for others.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from show_attend_tell.config.captioner import SavedConfig
from show_attend_tell.data.encoder_identity import Identity
from show_attend_tell.reference.captioner import EQUATIONS, Captioner, layout
from show_attend_tell.reference.decoder import WeightLayout
from show_attend_tell.reference.tensor_file import (
    TensorFile,
    faults_described,
    open_tensors,
    write_tensors,
)
from show_attend_tell.runtime.errors import ModelFileError, quote

CAPTIONER = "Captioner"  # the class of its files
RERANKER = "reranker"
CONFIDENCE = "confidence"
PARTS = (RERANKER, CONFIDENCE)


class Part(NamedTuple):
    """A part of a captioner's file."""

    about: dict[str, Any]  # values for JSON
    arrays: dict[str, np.ndarray]  # by name, without the name of the part


def read_captioner(
    path: str | Path,
    layout_of: Callable[[SavedConfig], list[WeightLayout]] | None = None,
) -> Captioner:
    """Read a captioner.

    Args:
        path: the file.
        layout_of: returns the names and shapes of its weights, by default
            :func:`reference.captioner.layout`; that of Keras also knows decoders
            without equations.

    Raises:
        NotImplementedError: by default, if the decoder has no equations.
        ModelFileError: the file is absent, damaged or not a captioner's, or its
            weights are not finite.
    """
    path = Path(path)
    with model_faults_described(path), open_tensors(path, CAPTIONER) as file:
        values: dict[str, Any] = file.about.get("config", {})
        config = parse_config(values)
        if layout_of is None:
            # Before `layout`, which would raise a KeyError.
            _require_equations(config.settings.decoder, path)
        # Names and shapes follow from the settings and are compared with the header: no
        # array is read before.
        shapes = dict((layout_of or layout)(config))
        names = file.require_weights(shapes)
        file.require_no_more(names | _names_of_parts(file))
        weights = {name: file.read_weight(name) for name in shapes}
        # As it is stored: `config` would fill keys that are absent with defaults.
        identity = values.get("encoder_identity") or {}
        return Captioner(config, identity, weights)


def _require_equations(decoder: str, path: Path) -> None:
    """Raise an error that names the file to write unless NumPy knows a decoder."""
    if decoder not in EQUATIONS:
        raise NotImplementedError(
            f"{path}: its decoder {decoder!r} has no equations in NumPy and needs "
            f"Keras; to caption without, write show_attend_tell/reference/{decoder}.py "
            "and list it in EQUATIONS of reference/captioner.py"
        )


def read_config(path: str | Path) -> tuple[SavedConfig, Identity]:
    """Return the settings of a captioner's file, and the identity of its encoder.

    Raises:
        ModelFileError: the file is absent, damaged or not a captioner's.
    """
    path = Path(path)
    with model_faults_described(path), open_tensors(path, CAPTIONER) as file:
        values: dict[str, Any] = file.about.get("config", {})
        return parse_config(values), values.get("encoder_identity") or {}


def parse_config(values: object) -> SavedConfig:
    """Return the settings of a captioner.

    Raises:
        ValueError: a value is missing, out of range or of another type.
    """
    try:
        # As text: in it a list is a tuple too, and nothing else is converted.
        return TypeAdapter(SavedConfig).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        # The first fault, cut short: the file may hold anything.
        fault = error.errors()[0]
        place = ".".join(map(str, ("config", *fault["loc"])))[:80]
        raise ValueError(
            f"{place}: {fault['msg'][:80]}. Received: {quote(fault['input'])}"
        ) from None


def _names_of_parts(file: TensorFile) -> set[str]:
    """Return the names of the arrays of the parts that a header lists."""
    parts = tuple(f"{part}/" for part in PARTS if part in file.about)
    return {name for name in file.names if name.startswith(parts)}


def model_faults_described(path: str | Path) -> AbstractContextManager[None]:
    """Raise a ModelFileError that names a file in place of errors in reading it."""
    return faults_described(
        path,
        ModelFileError,
        "a model",
        remedy="train the experiment again",
        if_absent="train a run, or name its model.safetensors or a packaged model",
    )


def write_captioner(
    path: str | Path,
    config: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    parts: Mapping[str, Part] | None = None,
) -> None:
    """Write a captioner atomically.

    Args:
        path: the file.
        config: the values of a SavedConfig, for JSON.
        weights: float32 or float16, or int8 with their scales, by their names.
        parts: parts by their names.

    Raises:
        OSError: the file cannot be written; an existing file stays as it was.
    """
    about: dict[str, Any] = {"class": CAPTIONER, "config": config}
    arrays = dict(weights)
    for name, part in (parts or {}).items():
        about[name] = part.about
        arrays |= {f"{name}/{key}": values for key, values in part.arrays.items()}
    write_tensors(path, about, arrays)


def part_of(file: TensorFile, name: str) -> Part:
    """Return a part of an open file as it is stored.

    Raises:
        ValueError: the file has no such part, or an array is damaged.
    """
    about = file.about.get(name)
    if not isinstance(about, dict):
        raise ValueError(f"`{name}` must be an object")
    prefix = f"{name}/"
    arrays = {
        key.removeprefix(prefix): file.read(key)
        for key in sorted(file.names)
        if key.startswith(prefix)
    }
    return Part(about, arrays)


def replace_part(path: str | Path, name: str, part: Part, *dropped: str) -> None:
    """Write a captioner's file again, atomically, with another part.

    Args:
        path: the file of a captioner, which stays as it is.
        name: one of :data:`PARTS`.
        part: the part, in place of an earlier one.
        dropped: parts that no longer hold, and are left out.

    Raises:
        ModelFileError: the file is absent, damaged or not a captioner's.
        OSError: the file cannot be written; it stays as it was.
    """
    config, weights, parts = _read_stored(Path(path))
    # Arrays go back as they are stored, so that 8 bits are not rounded twice.
    kept = {key: parts[key] for key in parts if key not in dropped}
    write_captioner(path, config, weights, {**kept, name: part})


def replace_settings(
    path: str | Path, table: str, changes: Mapping[str, int | float | str]
) -> None:
    """Write a captioner's file again, atomically, with other settings.

    Args:
        path: the file of a captioner, whose weights and parts stay as they are.
        table: the table of the settings, such as ``transformer``.
        changes: values of the table that neither weights nor parts depend on.

    Raises:
        ModelFileError: the file is absent, damaged or not a captioner's.
        OSError: the file cannot be written; it stays as it was.
    """
    config, weights, parts = _read_stored(Path(path))
    config = {**config, table: {**config[table], **changes}}
    write_captioner(path, config, weights, parts)


def _read_stored(
    path: Path,
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Part]]:
    """Return a captioner's settings, weights and parts as they are stored."""
    with model_faults_described(path), open_tensors(path, CAPTIONER) as file:
        parts = {name: part_of(file, name) for name in PARTS if name in file.about}
        own = sorted(file.names - _names_of_parts(file))
        weights = {key: file.read(key) for key in own}
        return file.about["config"], weights, parts
