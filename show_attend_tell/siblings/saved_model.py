"""Load the trained model of an experiment on digits or words."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import keras

from show_attend_tell.deployment.exports.half_precision import write_expanded
from show_attend_tell.runtime.errors import ModelFileError, one_line

_OTHER_SETTINGS = (
    "was trained with other settings of the model; restore them, or train again with "
    "--overwrite"
)


def read_model(path: Path) -> keras.Model:
    """Load a model file, also one whose weights have 8 bits.

    Raises:
        ModelFileError: the file is absent or damaged.
    """
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model; train the experiment first")
    try:
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "model.keras"
            write_expanded(path, plain)
            return keras.saving.load_model(plain, compile=False)
    except Exception as error:  # of any type: Keras builds whatever the file contains
        raise ModelFileError(
            f"{path}: cannot be read as a model ({one_line(error)}); train the "
            "experiment again"
        ) from None


def read_model_of(
    path: Path, matches: Callable[[keras.Model], bool], fault: str = _OTHER_SETTINGS
) -> keras.Model:
    """Load a model file of an experiment.

    Args:
        path: path of the file.
        matches: whether a model is one of the experiment's settings.
        fault: what another model is, and what to do.

    Raises:
        ModelFileError: the file is absent, damaged, or another model's.
    """
    model = read_model(path)
    if not matches(model):
        raise ModelFileError(f"{path}: {fault}")
    return model
