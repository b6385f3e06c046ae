"""Load captioners and generators from their model files."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
from pydantic import TypeAdapter, ValidationError

from show_attend_tell.config.captioner import SavedCaptioner
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.generator import Generator
from show_attend_tell.reference.reranker import find_reranker
from show_attend_tell.runtime.errors import (
    ModelFileError,
    one_line,
    quote,
)


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
            f"{path}: cannot be read as a model ({_reason(error)}); train the "
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
    """Load the captioners that generate together, and their reranker.

    Args:
        files: one model file or several.
        mirror: whether to average over photos and their mirror images.
        reranker: see :func:`reference.reranker.find_reranker`. A search of one
            hypothesis is an error if a reranker is named, and not ranked otherwise.

    Raises:
        ModelFileError: a file is absent, damaged or of another kind, or the files
            differ in vocabulary or encoder.
    """
    members = [load_captioner(file) for file in files]
    ranking = find_reranker(reranker, files)
    return Generator(members, mirror, ranking, files, must_rank=reranker is not None)


def _require_types(path: Path) -> None:
    """Raise an error if the configuration of a captioner has values of wrong types."""
    with zipfile.ZipFile(path) as archive:
        content = archive.read("config.json")
    if b"Captioner" in content:  # other classes are refused once they are loaded
        TypeAdapter(SavedCaptioner).validate_json(content, strict=True)


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return one_line(error)
    fault = error.errors()[0]
    place = ".".join(map(str, fault["loc"]))[:80]
    return f"{place}: {fault['msg'][:80]}. Received: {quote(fault['input'])}"
