"""Save and restore the whole state of a training in one ``.safetensors`` file.

The file holds weights, random state, optimiser (including its average of weights) and
the position of the training, so that a resumed training equals an uninterrupted one.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter

from show_attend_tell.config import runs
from show_attend_tell.config.fields import Count
from show_attend_tell.config.settings import Experiment
from show_attend_tell.reference.tensor_file import (
    TensorFile,
    faults_described,
    open_tensors,
    type_name,
    write_tensors,
)
from show_attend_tell.runtime.errors import TrainingError

_CLASS = "Checkpoint"
_REPLACE = "train again with --overwrite in place of --resume"


@dataclass
class Position:
    """Progress of a training."""

    epoch: Count = 0
    step_in_epoch: Count = 0
    step: Count = 0
    best: float | None = None
    best_step: Count = 0
    without_gain: Count = 0
    # The update validated last; 0 is the initial model.
    validated: Annotated[int, Field(ge=-1)] = -1
    stopped: str = ""
    start_counts: bool = False  # whether the initial model may be the best
    first_loss: float | None = None  # loss per word of the first update
    high_since: Count | None = None  # the update since which the loss is too large
    vocabulary: str = ""  # the task's digest: of the words of a captioner
    epochs: Count = 0  # of the settings
    # What was trained on -> its digest.
    data: dict[str, str] = field(default_factory=dict)


def save_checkpoint(path: str | Path, model, position: Position) -> None:
    """Write a checkpoint atomically.

    Args:
        path: the checkpoint's file.
        model: a compiled model whose optimiser is built.
        position: progress of the training.

    Raises:
        FloatingPointError: a variable is not finite; an existing file is left as it
            was.
    """
    # All values are validated before the file is touched, so that the checkpoint of a
    # diverged training does not replace the last good one.
    arrays = {}
    for name, variable in _variables(model).items():
        arrays[name] = np.asarray(variable).astype(
            _stored_type(variable.dtype), copy=False
        )
        _require_finite(variable.path, arrays[name])
    about = {"class": _CLASS, "position": dataclasses.asdict(position)}
    write_tensors(path, about, arrays)


def read_position(path: str | Path) -> Position:
    """Return the position in a checkpoint, without the variables.

    Raises:
        TrainingError: the file is absent or damaged.
    """
    with _opened(path) as file:
        return _position(file)


def is_trained(folder: Path, experiment: Experiment) -> bool:
    """Return whether a run has done all epochs or has stopped early.

    Raises:
        TrainingError: there is no checkpoint, it is damaged, or the settings have
            changed.
    """
    # With `resume` it compares the settings and changes no file.
    runs.open_run(experiment, folder.parent, resume=True, overwrite=False)
    position = read_position(folder / runs.CHECKPOINT)
    epochs = experiment.training.epochs
    extended = position.epochs < epochs
    return position.epoch >= epochs or bool(position.stopped and not extended)


def restore_checkpoint(path: str | Path, model) -> Position:
    """Set a compiled model and its built optimiser to a checkpoint's state.

    Returns:
        The position passed to :func:`save_checkpoint`.

    Raises:
        TrainingError: the file is absent, damaged, not finite or belongs to another
            model.
    """
    with _opened(path) as file:
        variables = _variables(model)
        if file.names != variables.keys():
            raise TrainingError(
                f"{path}: the checkpoint must hold the variables of the settings' "
                f"model and optimiser, {len(variables)}. Received: {len(file.names)}; "
                f"restore the settings, or {_REPLACE}"
            )
        for name, variable in variables.items():
            shape = file.shape(name)
            if shape != tuple(variable.shape):
                raise TrainingError(
                    f"{path}: {variable.path} must be {tuple(variable.shape)}. "
                    f"Received: {shape}; restore the settings, or {_REPLACE}"
                )
            file.require(name, shape, type_name(_stored_type(variable.dtype)))
        # Everything is read and validated before the first variable is assigned: a
        # damaged checkpoint leaves the model as it was.
        position = _position(file)
        values = {name: file.read(name) for name in variables}
        for name, variable in variables.items():
            _require_finite(variable.path, values[name])
        for name, variable in variables.items():
            variable.assign(values[name].astype(variable.dtype))
        return position


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[TensorFile]:
    """Open a checkpoint; raise a TrainingError if reading it fails."""
    remedy = f"the checkpoint is damaged: {_REPLACE}"
    with (
        faults_described(path, TrainingError, "a checkpoint", remedy),
        open_tensors(Path(path), _CLASS) as file,
    ):
        try:
            yield file
        except FloatingPointError as error:
            raise TrainingError(
                f"{path}: {error}; {_REPLACE} and a lower training.learning_rate"
            ) from None


def _position(file: TensorFile) -> Position:
    return TypeAdapter(Position).validate_python(file.about.get("position"))


def _variables(model) -> dict:
    """Return the variables of a model and its optimiser by their names in the file."""
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return {
        f"{group}/{k:04d}": variable
        for group, variables in groups.items()
        for k, variable in enumerate(variables)
    }


def _stored_type(dtype: str) -> str:
    """Return the type in the file: counters have other sizes on other backends."""
    return "int64" if "int" in dtype else dtype


def _require_finite(name: str, values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise FloatingPointError(f"{name} has values that are not finite")
