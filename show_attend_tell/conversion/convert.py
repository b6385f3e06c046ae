"""Convert a file, a run or a preset of version 0.3 into ``.safetensors`` files."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from show_attend_tell.config import runs
from show_attend_tell.config.settings import experiment_from_dict, parse_toml
from show_attend_tell.conversion.captioners import (
    convert_captioner,
    convert_reranker,
    require_not_alone,
)
from show_attend_tell.conversion.encoders import convert_encoder
from show_attend_tell.conversion.faults import conversion_of
from show_attend_tell.conversion.keras_files import WEIGHTS, OldModel, open_model
from show_attend_tell.reference.model_file import CAPTIONER
from show_attend_tell.reference.tensor_file import SUFFIX, current_path
from show_attend_tell.runtime import plugins
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.untrusted import (
    open_zip,
    read_text_bytes,
    require_regular,
)

_CHECKPOINT = "checkpoint.npz"
# Keys that runs of version 0.3 hold, and the values without effect.
_RETIRED: dict[str, dict[str, Any]] = {
    "encoder": {"trainable_from": ""},
    "training": {"encoder_learning_rate": 1e-5, "rollouts": "beam", "text": []},
}


class Converted(NamedTuple):
    """A file that was converted."""

    source: Path
    target: Path
    notes: list[str]  # what the user should know, a line each


def convert(
    name: str | Path,
    runs_folder: str | Path = "experiments/runs",
    network: str | None = None,
    overwrite: bool = False,
) -> Converted:
    """Convert a file, or the model and the settings of a run or preset.

    The files of version 0.3 stay.

    Args:
        name: a file, the folder of a run or of a preset, or a run's name.
        runs_folder: the folder of all runs.
        network: the network of an encoder's weights, see
            :func:`conversion.encoders.convert_encoder`.
        overwrite: whether to replace the new file if it exists.

    Raises:
        ModelFileError: the file is absent, damaged, older, or needs no conversion; or
            the new file exists.
        OSError: the new file cannot be written.
    """
    path = Path(name)
    if path.suffix == SUFFIX:
        raise ModelFileError(f"{path}: is already a {SUFFIX} file")
    folder = None
    # A folder that is named comes before a run of the same name.
    for place in (path, Path(runs_folder) / path):
        if place.is_dir():
            folder = place
            path = _model_in(folder)
            break
    if not path.exists():
        raise ModelFileError(f"{path}: no such file, run or preset")
    target = current_path(path)
    if target.exists() and not overwrite:
        raise ModelFileError(f"{target}: already exists; replace it with --overwrite")
    notes = _convert_file(path, target, network)
    if folder is not None:
        notes += _convert_settings(folder)
        if (folder / _CHECKPOINT).exists():
            notes.append(_checkpoint_note(folder / _CHECKPOINT))
    return Converted(path, target, notes)


def _model_in(folder: Path) -> Path:
    """Return the model of version 0.3 in the folder of a run or of a preset."""
    for name in ("model.keras", WEIGHTS):
        if (folder / name).is_file():
            return folder / name
    if (folder / runs.MODEL).is_file():
        raise ModelFileError(f"{folder}: its model is already a {SUFFIX} file")
    if (folder / _CHECKPOINT).is_file():
        raise ModelFileError(_checkpoint_note(folder / _CHECKPOINT))
    raise ModelFileError(f"{folder}: must be a run or a preset with a model")


def _checkpoint_note(path: Path) -> str:
    return (
        f"{path}: a checkpoint is not converted; only show-attend-tell 0.3 resumes it"
    )


def _convert_file(source: Path, target: Path, network: str | None) -> list[str]:
    """Convert one file by its kind; return notes."""
    with conversion_of(source):
        require_regular(source)
    if source.suffix == ".keras" or source.name == WEIGHTS:
        return _convert_model(source, target)
    if source.suffix == ".h5":
        convert_encoder(source, target, network)
        return []
    if source.suffix != ".npz":
        raise ModelFileError(
            f"{source}: must end with .keras, .npz or .h5, as files of version 0.3 do"
        )
    with conversion_of(source), open_zip(source) as archive:
        members = set(archive.namelist())
    # One member tells a checkpoint, a calibration, a reranker and an encoder apart.
    if "position.json" in members:
        raise ModelFileError(_checkpoint_note(source))
    if "familiarity.npy" in members:
        require_not_alone(source)
    if "coefficients.npy" in members:
        convert_reranker(source, target)
    else:
        convert_encoder(source, target)
    return []


def _convert_model(source: Path, target: Path) -> list[str]:
    """Convert a captioner, or the model of a plug-in; return notes."""
    # `conversion_of` covers the opening alone: the converters describe their own
    # faults, while the model is still open.
    with contextlib.ExitStack() as stack:
        with conversion_of(source):
            model = stack.enter_context(open_model(source))
            convert_model = _converter(model.class_name)
        if convert_model is not None:
            from show_attend_tell.runtime.keras_startup import start_keras

            start_keras()
            convert_model(model, source, target)
            return []
        notes = convert_captioner(model, source, target)
        return notes + _convert_weights_beside(model.values, source)


def _converter(class_name: str) -> Callable[[OldModel, Path, Path], None] | None:
    """Return the function of a plug-in that converts a class; None for captioners.

    Raises:
        ValueError: no plug-in has the class.
    """
    if class_name == CAPTIONER:
        return None
    for task in plugins.tasks().values():
        if class_name in task.models and task.convert_model is not None:
            return task.convert_model
    raise ValueError(f"a model of no known class: {class_name[:80]}")


def _convert_weights_beside(values: dict, source: Path) -> list[str]:
    """Convert the file of the encoder's weights beside a model, if there is one."""
    identity = values.get("encoder_identity") or {}
    name = identity.get("weights") or ""
    if Path(name).suffix != ".h5" or not source.with_name(name).is_file():
        return []
    beside = source.with_name(name)
    target = current_path(beside)
    # Several models of a folder share one file of weights.
    if not target.exists():
        convert_encoder(beside, target, identity.get("network"))
    return [f"{beside} -> {target}"]


def _convert_settings(folder: Path) -> list[str]:
    """Remove retired keys without effect from the settings of a run; return notes."""
    path = folder / runs.SETTINGS
    if not path.is_file():
        return []
    with conversion_of(path):
        values = parse_toml(read_text_bytes(path).decode("utf-8"))
        kept = dict(values)
        for name, retired in _RETIRED.items():
            if isinstance(table := values.get(name), dict):
                # A retired key with another value had an effect: it stays, and is
                # refused below.
                kept[name] = {k: v for k, v in table.items() if retired.get(k) != v}
        if kept == values:
            return []
        # The settings must be valid before they replace the old ones.
        experiment_from_dict({"name": folder.name, **kept}, str(path))
        atomic_write(path, tomli_w.dumps(kept))
    return [f"{path}: keys without effect removed"]
