"""Save and restore the whole state of a training in one file, without pickle.

The file holds weights, random state, optimiser (including its average of weights) and
the trainer's position, so that a resumed training equals an uninterrupted one.
"""

import io
import json
import zipfile
import zlib
from pathlib import Path

import numpy as np

from show_attend_tell.runtime.errors import RunError, TrainingError, one_line, quote
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.training.divergence import require_finite

# Errors of zipfile and NumPy, depending on which bytes are damaged.
_DAMAGE = (OSError, EOFError, KeyError, MemoryError, RuntimeError, ValueError)
_DAMAGE += (zipfile.BadZipFile, zlib.error)


def _variables(model) -> dict:
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return {
        f"{group}/{k:04d}": variable
        for group, variables in groups.items()
        for k, variable in enumerate(variables)
    }


def save_checkpoint(path: str | Path, model, position: dict) -> None:
    """Write a checkpoint atomically.

    Args:
        path: the checkpoint's file.
        model: a compiled model whose optimiser is built.
        position: state of the trainer, as JSON values.

    Raises:
        TrainingError: a variable is not finite; an existing file is left as it was.
    """
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        archive.writestr("position.json", json.dumps(position))
        for name, variable in _variables(model).items():
            buffer = io.BytesIO()
            values = np.asarray(variable)
            require_finite(variable.path, values)
            np.save(buffer, values, allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getvalue())


def read_position(path: str | Path) -> dict:
    """Return the position of a checkpoint without its variables.

    Raises:
        RunError: the file is absent or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            position = json.loads(archive.read("position.json"))
        if not isinstance(position, dict):
            raise ValueError(f"its position is {quote(position)}")
    except _DAMAGE as error:
        raise RunError(
            f"{path}: the checkpoint is damaged ({one_line(error)}); train without "
            "--resume"
        ) from None
    return position


def restore_checkpoint(path: str | Path, model) -> dict:
    """Set a compiled model and its built optimiser to a checkpoint's state.

    Returns:
        The position given to :func:`save_checkpoint`.

    Raises:
        RunError: the file is absent, damaged, not finite or belongs to another model.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            variables = _variables(model)
            stored = set(archive.namelist()) - {"position.json"}
            if stored != {f"{name}.npy" for name in variables}:
                raise RunError(
                    f"{path}: the checkpoint must hold the variables of the settings' "
                    f"model and optimiser, {len(variables)}. Received: {len(stored)}; "
                    "restore the settings, or train without --resume"
                )
            for name, variable in variables.items():
                content = io.BytesIO(archive.read(f"{name}.npy"))
                value = np.lib.format.read_array(content, allow_pickle=False)
                if value.shape != tuple(variable.shape):
                    raise RunError(
                        f"{path}: {variable.path} must be {tuple(variable.shape)}. "
                        f"Received: {value.shape}; restore the settings, or train "
                        "without --resume"
                    )
                if value.dtype.name != variable.dtype:
                    raise ValueError(
                        f"{variable.path} must be {variable.dtype}. Received: "
                        f"{value.dtype.name}"
                    )
                require_finite(variable.path, value)
                variable.assign(value)
            return json.loads(archive.read("position.json"))
    except RunError:
        raise
    except TrainingError as error:
        raise RunError(
            f"{path}: {error}; train with --overwrite and a lower "
            "training.learning_rate"
        ) from None
    except _DAMAGE as error:
        raise RunError(
            f"{path}: the checkpoint is damaged ({one_line(error)}); train without "
            "--resume"
        ) from None
