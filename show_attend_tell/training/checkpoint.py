"""The whole state of a training in one file, without pickle.

Weights, random state, optimiser (its average of weights included) and the trainer's
own position, so that a resumed training equals one that was never stopped.
"""

import io
import json
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from show_attend_tell.runtime.errors import RunError

# What zipfile and NumPy raise, depending on which bytes are wrong.
_DAMAGE = (OSError, EOFError, KeyError, RuntimeError, ValueError)
_DAMAGE += (zipfile.BadZipFile, zlib.error)


def _variables(model) -> dict:
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return {
        f"{group}/{k:04d}": variable
        for group, variables in groups.items()
        for k, variable in enumerate(variables)
    }


def save(path: str | Path, model, position: dict) -> None:
    """Write a checkpoint, all or nothing.

    Args:
        path: the file.
        model: compiled, its optimiser built.
        position: what the trainer must know to go on, as JSON values.
    """
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    with zipfile.ZipFile(temporary, "w") as archive:
        archive.writestr("position.json", json.dumps(position))
        for name, variable in _variables(model).items():
            buffer = io.BytesIO()
            np.save(buffer, np.asarray(variable), allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    os.replace(temporary, path)


def restore(path: str | Path, model) -> dict:
    """Set a compiled model and its built optimiser to a checkpoint's state.

    Returns:
        The position given to :func:`save`.

    Raises:
        RunError: the file is damaged or belongs to another model.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            variables = _variables(model)
            stored = set(archive.namelist()) - {"position.json"}
            if stored != {f"{name}.npy" for name in variables}:
                raise RunError(f"{path}: belongs to another model or optimiser")
            for name, variable in variables.items():
                value = np.load(io.BytesIO(archive.read(f"{name}.npy")))
                if value.shape != tuple(variable.shape):
                    raise RunError(
                        f"{path}: {variable.path} must be {tuple(variable.shape)}. "
                        f"Received: {value.shape}; the model has changed"
                    )
                variable.assign(value)
            return json.loads(archive.read("position.json"))
    except RunError:
        raise
    except _DAMAGE as error:
        raise RunError(f"{path}: damaged checkpoint ({error})") from None
