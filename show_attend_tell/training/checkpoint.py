"""Save and restore the whole state of a training in one file, without pickle.

The file holds weights, random state, optimiser (including its average of weights) and
the position of the training, so that a resumed training equals an uninterrupted one.
"""

import contextlib
import dataclasses
import io
import json
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter

from show_attend_tell.config import runs
from show_attend_tell.config.fields import Count
from show_attend_tell.config.settings import Experiment
from show_attend_tell.runtime.errors import RunError, TrainingError
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.keras_archive import add_member
from show_attend_tell.runtime.untrusted import (
    open_archive,
    parse_array,
    parse_json,
    read_member,
    reading,
)

_HEADER = 10_000  # bytes of an array's header, and of the position


@dataclass
class Position:
    """Progress of a training."""

    epoch: Count = 0
    step_in_epoch: Count = 0
    step: Count = 0
    best: float | None = None  # -1.0 in checkpoints of earlier versions
    best_step: Count = 0
    without_gain: Count = 0
    # The update validated last; 0 is the initial model.
    validated: Annotated[int, Field(ge=-1)] = -1
    stopped: str = ""
    start_counts: bool = False  # whether the initial model may be the best
    first_loss: float | None = None  # loss per word of the first update
    vocabulary: str = ""  # digest of the words
    epochs: Count = 0  # of the settings; 0 in checkpoints of earlier versions
    # What was trained on -> its digest; none in checkpoints of earlier versions.
    data: dict[str, str] = field(default_factory=dict)


def save_checkpoint(path: str | Path, model, position: Position) -> None:
    """Write a checkpoint atomically.

    Args:
        path: the checkpoint's file.
        model: a compiled model whose optimiser is built.
        position: progress of the training.

    Raises:
        TrainingError: a variable is not finite; an existing file is left as it was.
    """
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        position_text = json.dumps(dataclasses.asdict(position))
        add_member(archive, "position.json", position_text)
        for name, variable in _variables(model).items():
            buffer = io.BytesIO()
            values = np.asarray(variable)
            _require_finite(variable.path, values)
            np.save(buffer, values, allow_pickle=False)
            add_member(archive, name, buffer.getvalue())


def read_position(path: str | Path) -> Position:
    """Return the position in a checkpoint, without the variables.

    Raises:
        RunError: the file is absent or damaged.
    """
    with _opened(path) as archive:
        return _position(archive)


def is_trained(folder: Path, experiment: Experiment) -> bool:
    """Return whether a run has done all epochs or has stopped early.

    Raises:
        RunError: there is no checkpoint, it is damaged, or the settings have changed.
    """
    runs.open_run(experiment, folder.parent, resume=True, overwrite=False)
    position = read_position(folder / runs.CHECKPOINT)
    epochs = experiment.training.epochs
    extended = 0 < position.epochs < epochs
    return position.epoch >= epochs or bool(position.stopped and not extended)


def restore_checkpoint(path: str | Path, model) -> Position:
    """Set a compiled model and its built optimiser to a checkpoint's state.

    Returns:
        The position passed to :func:`save_checkpoint`.

    Raises:
        RunError: the file is absent, damaged, not finite or belongs to another model.
    """
    with _opened(path) as archive:
        variables = _variables(model)
        stored = set(archive.namelist()) - {"position.json"}
        if stored != variables.keys():
            raise RunError(
                f"{path}: the checkpoint must hold the variables of the settings' "
                f"model and optimiser, {len(variables)}. Received: {len(stored)}; "
                "restore the settings, or train without --resume"
            )
        for name, variable in variables.items():
            size = math.prod(variable.shape) * np.dtype(variable.dtype).itemsize
            value = parse_array(read_member(archive, name, size + _HEADER))
            if value.shape != tuple(variable.shape):
                raise RunError(
                    f"{path}: {variable.path} must be {tuple(variable.shape)}. "
                    f"Received: {value.shape}; restore the settings, or train "
                    "without --resume"
                )
            if value.dtype.name != variable.dtype:
                raise ValueError(f"{variable.path} is {value.dtype.name}")
            _require_finite(variable.path, value)
            variable.assign(value)
        return _position(archive)


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[zipfile.ZipFile]:
    """Open a checkpoint; raise a RunError if reading it fails."""
    remedy = "the checkpoint is damaged: train without --resume"
    try:
        with reading(path, RunError, remedy), open_archive(Path(path)) as archive:
            yield archive
    except TrainingError as error:
        raise RunError(
            f"{path}: {error}; train with --overwrite and a lower "
            "training.learning_rate"
        ) from None


def _position(archive: zipfile.ZipFile) -> Position:
    state = parse_json(read_member(archive, "position.json", _HEADER))
    return TypeAdapter(Position).validate_python(state)


def _variables(model) -> dict:
    """Return the variables of a model and its optimiser by their names in the file."""
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return {
        f"{group}/{k:04d}.npy": variable
        for group, variables in groups.items()
        for k, variable in enumerate(variables)
    }


def _require_finite(name: str, values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise TrainingError(f"{name} has values that are not finite")
