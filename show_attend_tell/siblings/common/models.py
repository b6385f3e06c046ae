"""Build and load the models of a task, the one in the package included."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, create_model

from show_attend_tell.config.fields import Seed
from show_attend_tell.config.runs import find_model
from show_attend_tell.reference.model_file import model_faults_described
from show_attend_tell.reference.tensor_file import class_of, open_tensors
from show_attend_tell.runtime.backend import without_values
from show_attend_tell.runtime.errors import ModelFileError, SetupError
from show_attend_tell.siblings.common.layers import SiblingModel, named_weights

_SIDE = Annotated[int, Field(ge=1, le=1000)]  # side of a picture, or number of classes


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

    def build(self, experiment, **of_data: object) -> SiblingModel:
        """Return the untrained model of an experiment.

        Args:
            experiment: the settings.
            **of_data: arguments of the model that its data decide.
        """
        model, arguments = self.arguments_of(experiment)
        return model(**arguments, **of_data, seed=experiment.training.seed)

    def load(self, path: Path, experiment=None) -> SiblingModel:
        """Load a trained model; given an experiment, require its settings.

        Args:
            path: a ``.safetensors`` file.
            experiment: an experiment of this task.

        Raises:
            ModelFileError: the file is absent or damaged, or holds another model.
        """
        names = [each.__name__ for each in self.classes]
        name = class_of(path)
        # A model of another task has a message of its own. The name is empty for a file
        # of another program, which `open_tensors` refuses below.
        if name and name not in names:
            raise ModelFileError(
                f"{path}: must be a model of task = {self.task!r}. Received: "
                f"{name[:80]}; name the model of a run with this task"
            )
        with model_faults_described(path), open_tensors(Path(path), *names) as file:
            model_class = self.class_named(file.about["class"])
            config = file.about.get("config")
            # Shapes first, without values: forged settings must not make the model
            # allocate more memory than the file holds.
            shapes = self.shapes_of(model_class, config)
            file.require_no_more(file.require_weights(shapes))
            model = self.make(model_class, config)
            # One by one: a second copy of all weights is never in memory.
            for name, weight in named_weights(model).items():
                weight.assign(file.read_weight(name))
        # The data decide the other arguments, such as the names of the classes.
        expected = {} if experiment is None else self.arguments_of(experiment)[1]
        if any(getattr(model, name) != value for name, value in expected.items()):
            raise ModelFileError(
                f"{path}: was trained with other settings of the model; restore them, "
                "or train again with --overwrite"
            )
        return model

    def class_named(self, name: str) -> type[SiblingModel]:
        """Return the class of a name.

        Raises:
            ValueError: the task has none of this name.
        """
        for model_class in self.classes:
            if model_class.__name__ == name:
                return model_class
        raise ValueError(f"a model of no class of this task: {name[:80]}")

    def make(self, model_class: type[SiblingModel], config: object) -> SiblingModel:
        """Return an untrained model of the values that a file holds.

        Raises:
            ValueError: a value is missing, out of range or of another type.
        """
        # As text: in it a list is a tuple too, and nothing else is converted.
        values = TypeAdapter(_saved_values(model_class)).validate_json(
            json.dumps(config), strict=True
        )
        return model_class(**dict(values))

    def shapes_of(
        self, model_class: type[SiblingModel], config: object
    ) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight of a model, without its values.

        Raises:
            ValueError: see :meth:`make`.
        """

        def build() -> dict[str, tuple[int, ...]]:
            weights = named_weights(self.make(model_class, config))
            return {name: tuple(weight.shape) for name, weight in weights.items()}

        shapes: dict[str, tuple[int, ...]] = without_values(build)
        return shapes

    def load_shipped(self) -> SiblingModel:
        """Load the model in the package.

        Raises:
            ModelFileError: the file is damaged.
            SetupError: the installation has no such model.
        """
        return self.load(self.shipped_file())

    def shipped_file(self) -> Path:
        """Return the file of the model in the package.

        Raises:
            SetupError: the installation has no such model.
        """
        if not self.shipped.is_file():
            name = self.shipped.stem
            raise SetupError(
                f"{self.shipped}: this installation has no trained {name}; train one "
                f"with `make prepare train EXPERIMENT={name}`, and name the model of "
                "its run"
            )
        return self.shipped

    def load_initial(self, source: str, runs: Path) -> tuple[Path, SiblingModel]:
        """Load the model that a training starts from; return its path too.

        Args:
            source: a ``.safetensors`` file, ``shipped``, or the name of a run.
            runs: the folder of all runs.

        Raises:
            ModelFileError: the file is absent or damaged.
        """
        path = self.shipped_file() if source == "shipped" else find_model(source, runs)
        return path, self.load(path)

    def set_weights_from(
        self, initial: SiblingModel, path: Path, model: SiblingModel
    ) -> None:
        """Give a model the weights of another one, such as one of fewer glimpses.

        Layers of ``may_be_new`` that the other model lacks keep their initial weights.

        Args:
            initial: a trained model.
            path: its file.
            model: an untrained model.

        Raises:
            ModelFileError: it is a model of another class, or its weights have other
                shapes.
        """
        try:
            if type(initial) is not type(model):
                raise ValueError("another class")
            model.extend(initial)
        except ValueError:
            raise ModelFileError(
                f"{path}: has weights of other shapes than the experiment's model; "
                "restore the settings of the model, or name another file in "
                "training.init_from"
            ) from None


def _saved_values(model: type[SiblingModel]) -> type:
    """Return the types of the values in a model's file."""
    fields: dict[str, Any] = {
        "settings": (model.settings_class, ...),
        "seed": (Seed, 0),
        **dict.fromkeys(model.sizes, (_SIDE, ...)),
        **model.texts,
    }
    return create_model(model.__name__, **fields)
