"""Load the trained models of digits and words in the package.

They are files of 8 bits per weight, written by ``export`` from the runs of the
experiments of the same names.
"""

from importlib.resources import files
from pathlib import Path

import keras

from show_attend_tell.runtime.errors import PretrainedModelError
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.ram.model import RecurrentAttention
from show_attend_tell.siblings.saved_model import read_model_of
from show_attend_tell.siblings.words.model import Reader

FOLDER = Path(str(files("show_attend_tell.siblings"))) / "weights"
READER = "read_words"
_DIGITS = ("ram_mnist", "draw_mnist")
_CLASSES = {"ram_mnist": RecurrentAttention, "draw_mnist": Draw, READER: Reader}


def are_shipped() -> bool:
    """Return whether the package has all of its models of digits."""
    return all(_file(name).is_file() for name in _DIGITS)


def is_reader_shipped() -> bool:
    """Return whether the package has a reader of words."""
    return _file(READER).is_file()


def shipped_file(name: str) -> Path:
    """Return the file of a trained model of the package.

    Args:
        name: ``ram_mnist``, ``draw_mnist`` or ``read_words``.

    Raises:
        PretrainedModelError: the installation has no such model.
    """
    path = _file(name)
    if not path.is_file():
        raise PretrainedModelError(
            f"{path}: this installation has no trained {name}; train one with "
            f"`make prepare train EXPERIMENT={name}`, and name the model of its run"
        )
    return path


def load_shipped(name: str) -> keras.Model:
    """Load a trained model of the package.

    Args:
        name: see :func:`shipped_file`.

    Raises:
        PretrainedModelError: the installation has no such model.
        ModelFileError: the file is damaged.
    """
    return read_model_of(
        shipped_file(name), lambda model: isinstance(model, _CLASSES[name])
    )


def _file(name: str) -> Path:
    return FOLDER / f"{name}.keras"
