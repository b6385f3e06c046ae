"""Build and load the models of a task, the one in the package included."""

import functools
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import h5py
import keras
from pydantic import Field, create_model

from show_attend_tell.config.fields import Seed
from show_attend_tell.config.runs import find_model
from show_attend_tell.reference.model_file import (
    SavedModel,
    class_of,
    faults_described,
    read_model,
    read_weight,
    require_weights,
)
from show_attend_tell.runtime.errors import ModelFileError, PretrainedModelError
from show_attend_tell.runtime.untrusted import SCALE
from show_attend_tell.siblings.common.layers import SiblingModel

_SIDE = Annotated[int, Field(ge=1, le=1000)]


@dataclass(frozen=True)
class TaskModels:
    """The models of a task.

    Attributes:
        task: name of the task.
        classes: the classes of its models.
        arguments_of: returns the class of an experiment's model, and its arguments
            except the seed.
        shipped: file of the model in the package, with 8 bits per weight. ``export``
            writes it from a run of the experiment of its name.
    """

    task: str
    classes: tuple[type[SiblingModel], ...]
    arguments_of: Callable[[Any], tuple[type[SiblingModel], dict]]
    shipped: Path

    def build(self, experiment) -> SiblingModel:
        """Return the untrained model of an experiment."""
        model, arguments = self.arguments_of(experiment)
        return model(**arguments, seed=experiment.training.seed)

    def load(self, path: Path, experiment=None) -> SiblingModel:
        """Load a trained model; given an experiment, require its settings.

        Args:
            path: a ``.keras`` file.
            experiment: an experiment of this task.

        Raises:
            ModelFileError: the file is absent or damaged, or holds another model.
        """
        class_named = {each.__name__: each for each in self.classes}
        name = class_of(path)
        if name and name not in class_named:
            raise ModelFileError(
                f"{path}: must be a model of task = {self.task!r}. Received: "
                f"{name[:80]}; name the model of a run with this task"
            )
        with faults_described(path):
            values = {name: _saved_values(each) for name, each in class_named.items()}
            saved = read_model(path, values)
            model = _built(saved, class_named[saved.class_name])
        expected = {} if experiment is None else self.arguments_of(experiment)[1]
        if any(getattr(model, name) != value for name, value in expected.items()):
            raise ModelFileError(
                f"{path}: was trained with other settings of the model; restore them, "
                "or train again with --overwrite"
            )
        return model

    def load_shipped(self) -> SiblingModel:
        """Load the model in the package.

        Raises:
            ModelFileError: the file is damaged.
            PretrainedModelError: the installation has no such model.
        """
        return self.load(self.shipped_file())

    def shipped_file(self) -> Path:
        """Return the file of the model in the package.

        Raises:
            PretrainedModelError: the installation has no such model.
        """
        if not self.shipped.is_file():
            name = self.shipped.stem
            raise PretrainedModelError(
                f"{self.shipped}: this installation has no trained {name}; train one "
                f"with `make prepare train EXPERIMENT={name}`, and name the model of "
                "its run"
            )
        return self.shipped

    def set_weights_from(self, source: str, model: keras.Model, runs: Path) -> None:
        """Give a model the weights of another one, such as one of fewer glimpses.

        Args:
            source: a ``.keras`` file, ``shipped``, or the name of a run.
            model: an untrained model.
            runs: the folder of all runs.

        Raises:
            ModelFileError: the file is absent or damaged, or its weights have other
                shapes.
        """
        shipped = source == "shipped"
        path = self.shipped_file() if shipped else find_model(source, runs)
        initial = self.load(path)
        shapes = [
            [weight.shape for weight in each.weights] for each in (initial, model)
        ]
        if type(initial) is not type(model) or shapes[0] != shapes[1]:
            raise ModelFileError(
                f"{path}: has weights of other shapes than the experiment's model; "
                "restore the settings of the model, or name another file in "
                "training.init_from"
            )
        model.set_weights(initial.get_weights())


@functools.cache
def _saved_values(model: type[SiblingModel]) -> type:
    """Return the types of the values in a model's file."""
    return create_model(
        model.__name__,
        settings=(model.settings_class, ...),
        seed=(Seed, 0),
        **dict.fromkeys(model.sizes, (_SIDE, ...)),
    )


def _built(saved: SavedModel, model_class: type[SiblingModel]) -> SiblingModel:
    """Return the model of a file, of at most ``saved.most_weights`` numbers."""
    import tensorflow as tf

    make = functools.partial(model_class, **dict(saved.config))
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
