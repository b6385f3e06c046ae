"""Export a trained model as a ``.keras`` file, for ``keras.saving.load_model``."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import keras

from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.keras_archive import save_keras


def export_keras(
    source: str | Path,
    target: str | Path,
    beam: int | None = None,
    load_model: Callable[[Path], keras.Model] = load_captioner,
) -> None:
    """Write the Keras model of a file atomically.

    Args:
        source: a ``.safetensors`` file.
        target: path of the new file, which ends with ``.keras``.
        beam: beam width of the new file, which then searches by a beam; by default
            the model's.
        load_model: loads the model; only a captioner has a ``beam``.

    Raises:
        ModelFileError: the new file has another ending; or the source cannot be loaded.
    """
    if Path(target).suffix != ".keras":
        raise ModelFileError(
            f"`out` must end with .keras. Received: {target}; correct the name"
        )
    model = load_model(Path(source))
    if beam is not None:
        searched = dataclasses.replace(model.decoding, method="beam", beam=beam)
        model.decoding = searched
    with atomic_path(target) as temporary:
        save_keras(model, temporary)
