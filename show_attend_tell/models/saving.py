"""Load a captioner from its model file, or copy its weights into another."""

import itertools
import zipfile
from pathlib import Path

import keras

from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.runtime.errors import ModelFileError


def load_captioner(path: str | Path) -> Captioner:
    """Load a captioner from its model file.

    Raises:
        ModelFileError: the file is absent, damaged or not a captioner's.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(
            f"{path}: no such model; train the run it belongs to first"
        )
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


def copy_weights(path: str | Path, model: Captioner) -> Captioner:
    """Copy the weights of a model file into a captioner.

    A soft model can start a hard one, and a hard one a soft one: they differ by the
    baseline alone, which then starts at 0.

    Returns:
        The captioner of the file.

    Raises:
        ModelFileError: the file cannot be loaded, or its words, encoder or weights
            differ from the captioner's.
    """
    source = load_captioner(path)
    if source.vocabulary.words != model.vocabulary.words:
        raise ModelFileError(
            f"{path}: its vocabulary is not that of the prepared data; start from a "
            "model trained on the same data"
        )
    difference = identity_difference(source.encoder_identity, model.encoder_identity)
    if difference:
        raise ModelFileError(
            f"{path}: it was trained on another encoder's features ({difference}); "
            "start from a model of the same encoder"
        )
    weights = [
        _shared_weights(m, other) for m, other in ((source, model), (model, source))
    ]
    shapes = [[(w.name, tuple(w.shape)) for w in each] for each in weights]
    for theirs, ours in itertools.zip_longest(*shapes):
        if theirs != ours:
            raise ModelFileError(
                f"{path}: its weights must have the shapes of the settings, {ours}. "
                f"Received: {theirs}; start from a model of the same widths and "
                "switches"
            )
    for theirs, ours in zip(*weights, strict=True):
        ours.assign(theirs)
    return source


def _shared_weights(model: Captioner, other: Captioner) -> list:
    """Return a model's weights, without those of hard attention if `other` is soft."""
    if model.hard_attention is None or other.hard_attention is not None:
        return model.weights
    own = {w.path for w in model.hard_attention.weights}
    return [w for w in model.weights if w.path not in own]
