"""Build and load the models of digits and words."""

import tempfile
from pathlib import Path

import keras

from show_attend_tell.models.encoder.quantised_weights import (
    copy_archive,
    dequantised_array,
)
from show_attend_tell.runtime.errors import ModelFileError, one_line
from show_attend_tell.siblings.classifier import PictureClassifier
from show_attend_tell.siblings.draw.model import Draw, WindowClassifier
from show_attend_tell.siblings.ram.model import RecurrentAttention
from show_attend_tell.siblings.words.model import Reader

# The classes of each task's models.
CLASSES = {
    "classify": (RecurrentAttention, PictureClassifier, WindowClassifier),
    "generate": (Draw,),
    "read": (Reader,),
}


def build_model(experiment) -> keras.Model:
    """Return the untrained model of an experiment."""
    model, arguments = _arguments_of(experiment)
    return model(**arguments, seed=experiment.training.seed)


def _arguments_of(experiment) -> tuple[type[keras.Model], dict]:
    """Return the class of an experiment's model, and its arguments except the seed."""
    if experiment.task == "read":
        return Reader, {"settings": experiment.reader}
    side = experiment.data.canvas
    if experiment.task == "generate":
        return Draw, {"settings": experiment.draw, "height": side, "width": side}
    settings = experiment.model
    classes = CLASSES["classify"]
    (model,) = (each for each in classes if isinstance(settings, each.settings_class))
    return model, {"settings": settings, "canvas": side}


def load_model(path: Path, task: str, experiment=None) -> keras.Model:
    """Load a trained model of a task; given an experiment, require its settings.

    Args:
        path: a ``.keras`` file.
        task: a key of :data:`CLASSES`.
        experiment: an experiment of this task.

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
    if not isinstance(model, CLASSES[task]):
        raise ModelFileError(
            f"{path}: must be a model of task = {task!r}. Received: "
            f"{type(model).__name__}; name the model of a run with this task"
        )
    expected = {} if experiment is None else _arguments_of(experiment)[1]
    if any(getattr(model, name) != value for name, value in expected.items()):
        raise ModelFileError(
            f"{path}: was trained with other settings of the model; restore them, or "
            "train again with --overwrite"
        )
    return model
