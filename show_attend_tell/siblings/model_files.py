"""Load trained models of digits and words, from a run or from the package.

The package's files have 8 bits per weight. ``export`` writes them from the runs of the
experiments with the same names.
"""

import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import keras

from show_attend_tell.models.encoder.quantised_weights import (
    copy_archive,
    dequantised_array,
)
from show_attend_tell.runtime.errors import (
    ModelFileError,
    PretrainedModelError,
    one_line,
)

FOLDER = Path(str(files(__package__))) / "weights"
RAM, DRAW, READER = "ram_mnist", "draw_mnist", "read_words"  # models of the package


def are_shipped(*names: str) -> bool:
    """Return whether the package has all of the named models."""
    return all((FOLDER / f"{name}.keras").is_file() for name in names)


def shipped_file(name: str) -> Path:
    """Return the file of a trained model of the package.

    Args:
        name: :data:`RAM`, :data:`DRAW` or :data:`READER`.

    Raises:
        PretrainedModelError: the installation has no such model.
    """
    path = FOLDER / f"{name}.keras"
    if not path.is_file():
        raise PretrainedModelError(
            f"{path}: this installation has no trained {name}; train one with "
            f"`make prepare train EXPERIMENT={name}`, and name the model of its run"
        )
    return path


def load_model(
    path: Path,
    classes: type[keras.Model] | tuple[type[keras.Model], ...],
    task: str,
    expected: Mapping[str, object],
) -> keras.Model:
    """Load a model file, and check that it is the expected model.

    Args:
        path: path of the file.
        classes: the classes of the task's models.
        task: name of the task.
        expected: values of the model's attributes, those of an experiment.

    Raises:
        ModelFileError: the file is absent or damaged, or holds another model.
    """
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model; train the experiment first")
    try:
        with tempfile.TemporaryDirectory() as folder:
            expanded = Path(folder) / "model.keras"
            copy_archive(path, expanded, dequantised_array)
            model = keras.saving.load_model(expanded, compile=False)
    except Exception as error:  # of any type: Keras builds whatever the file contains
        raise ModelFileError(
            f"{path}: cannot be read as a model ({one_line(error)}); train the "
            "experiment again"
        ) from None
    if not isinstance(model, classes):
        raise ModelFileError(
            f"{path}: must be a model of task = {task!r}. Received: "
            f"{type(model).__name__}; name the model of a run with this task"
        )
    if any(getattr(model, name) != value for name, value in expected.items()):
        raise ModelFileError(
            f"{path}: was trained with other settings of the model; restore them, or "
            "train again with --overwrite"
        )
    return model
