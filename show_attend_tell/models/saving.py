"""Load captioners and generators from their model files."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
from pydantic import TypeAdapter

from show_attend_tell.config.captioner import SavedCaptioner
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.generator import Generator
from show_attend_tell.reference import captioner
from show_attend_tell.reference.model_file import fault_of
from show_attend_tell.runtime.errors import ModelFileError


def load_captioner(path: str | Path) -> Captioner:
    """Load a captioner from its model file.

    Raises:
        ModelFileError: the file is absent, damaged or not a captioner's, or its
            weights are not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(
            f"{path}: no such model; train the run it belongs to first"
        )
    try:
        _require_types(path)
        model = keras.saving.load_model(path, compile=False)
    except Exception as error:  # of any type: Keras builds whatever the file contains
        raise ModelFileError(
            f"{path}: cannot be read as a model ({fault_of(error)}); train the "
            "experiment again"
        ) from None
    if not isinstance(model, Captioner):
        raise ModelFileError(
            f"{path}: must hold a Captioner. Received: {type(model).__name__}"
        )
    for weight in model.weights:
        if not np.isfinite(np.asarray(weight)).all():
            raise ModelFileError(
                f"{path}: its weights must be finite. Received: NaN or infinity in "
                f"{weight.path}; train again with a lower training.learning_rate"
            )
    return model


def load_generator(
    files: Sequence[str | Path],
    mirror: bool = False,
    reranker: str | Path | None = None,
) -> Generator:
    """Load Keras captioners, see :func:`reference.captioner.load_generator`."""
    return captioner.load_generator(files, mirror, reranker, load_captioner, Generator)


def _require_types(path: Path) -> None:
    """Raise an error if the configuration of a captioner has values of wrong types."""
    with zipfile.ZipFile(path) as archive:
        content = archive.read("config.json")
    if b"Captioner" in content:  # other classes are refused once they are loaded
        TypeAdapter(SavedCaptioner).validate_json(content, strict=True)
