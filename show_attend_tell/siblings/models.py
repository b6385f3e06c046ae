"""Build and load the models of digits and words, those of the package included."""

import functools
import math
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import h5py
import keras
from pydantic import Field, create_model

from show_attend_tell.config.fields import Seed
from show_attend_tell.config.runs import find_model
from show_attend_tell.reference.model_file import (
    SavedModel,
    faults_described,
    read_model,
    read_weight,
    require_weights,
)
from show_attend_tell.runtime.errors import ModelFileError, PretrainedModelError
from show_attend_tell.runtime.untrusted import SCALE
from show_attend_tell.siblings.classifier import PictureClassifier
from show_attend_tell.siblings.draw.model import Draw, WindowClassifier
from show_attend_tell.siblings.ram.model import RecurrentAttention
from show_attend_tell.siblings.words.model import Reader

FOLDER = Path(str(files(__package__))) / "weights"
# The models in the package, with 8 bits per weight; `export` writes them from runs of
# these experiments, the reader's with the changes of the row `read_words_wide`.
SHIPPED = {"classify": "ram_mnist", "generate": "draw_mnist", "read": "read_words"}
# The classes of each task's models.
CLASSES = {
    "classify": (RecurrentAttention, PictureClassifier, WindowClassifier),
    "generate": (Draw,),
    "read": (Reader,),
}
_CLASS_OF = {cls.__name__: cls for classes in CLASSES.values() for cls in classes}
_SIDE = Annotated[int, Field(ge=1, le=1000)]
# The types of the values in a model's file.
_SAVED = {
    name: create_model(
        name,
        settings=(cls.settings_class, ...),
        seed=(Seed, 0),
        **dict.fromkeys(cls.sizes, (_SIDE, ...)),
    )
    for name, cls in _CLASS_OF.items()
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
    with faults_described(path):
        model = _built(read_model(path, _SAVED))
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


def set_weights_from(source: str, model: keras.Model, task: str, runs: Path) -> None:
    """Give a model the weights of another one, such as one of fewer glimpses.

    Args:
        source: a ``.keras`` file, ``shipped``, or the name of a run.
        model: an untrained model.
        task: a key of :data:`CLASSES`.
        runs: the folder of all runs.

    Raises:
        ModelFileError: the file is absent or damaged, or its weights have other shapes.
    """
    path = shipped_file(task) if source == "shipped" else find_model(source, runs)
    initial = load_model(path, task)
    shapes = [[weight.shape for weight in each.weights] for each in (initial, model)]
    if type(initial) is not type(model) or shapes[0] != shapes[1]:
        raise ModelFileError(
            f"{path}: has weights of other shapes than the experiment's model; restore "
            "the settings of the model, or name another file in training.init_from"
        )
    model.set_weights(initial.get_weights())


def shipped_file(task: str) -> Path:
    """Return the file of the package's model of a task.

    Raises:
        PretrainedModelError: the installation has no such model.
    """
    name = SHIPPED[task]
    path = FOLDER / f"{name}.keras"
    if not path.is_file():
        raise PretrainedModelError(
            f"{path}: this installation has no trained {name}; train one with "
            f"`make prepare train EXPERIMENT={name}`, and name the model of its run"
        )
    return path


def _built(saved: SavedModel) -> keras.Model:
    """Return the model of a file, of at most ``saved.most_weights`` numbers."""
    import tensorflow as tf

    make = functools.partial(_CLASS_OF[saved.class_name], **dict(saved.config))
    with tf.Graph().as_default():  # in which variables have shapes and no values
        count = sum(math.prod(weight.shape) for weight in make().weights)
    require_weights(saved, count)
    model = make()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "model.weights.h5"
        with h5py.File(copy, "w") as file:
            for name, shape in saved.file.shapes("optimizer").items():
                if not name.endswith(SCALE):
                    file[name] = read_weight(saved.file, name, shape, name)
        model.load_weights(copy)
    return model
