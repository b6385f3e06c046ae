"""Read the one file that holds a trained captioner."""

import zipfile
from pathlib import Path

import keras

from show_attend_tell.captioner import Captioner


class ModelFileError(ValueError):
    """A model file that cannot be used; the message is one line for the user."""


def load_captioner(path: str | Path) -> Captioner:
    """Read a captioner from its file.

    Raises:
        ModelFileError: the file is absent, damaged or of another model.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model; train the experiment first")
    try:
        model = keras.saving.load_model(path, compile=False)
    except (ValueError, OSError, KeyError, TypeError, zipfile.BadZipFile) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelFileError(
            f"{path}: cannot be read as a model ({reason}); train the experiment again"
        ) from None
    if not isinstance(model, Captioner):
        raise ModelFileError(
            f"{path}: must hold a Captioner. Received: {type(model).__name__}"
        )
    return model
