"""Find the trained captioners of the package, and models by their names."""

from importlib.resources import files
from pathlib import Path

from show_attend_tell.runtime.errors import PretrainedModelError, nearest, quote

SHIPPED = Path(str(files(__package__))) / "weights" / "everyday.keras"
SHIPPED_LSTM = SHIPPED.with_name("everyday_lstm.keras")
# Trained on Flickr8k alone, for comparisons; in a checkout only.
FLICKR8K = SHIPPED.parents[3] / "experiments" / "models" / "flickr8k.keras"
FLICKR8K_LSTM = FLICKR8K.with_name("flickr8k_lstm.keras")
CARD = SHIPPED.with_name("MODEL_CARD.md")
DEFAULT = "shipped"
NAMES = (DEFAULT, "shipped-lstm")  # in place of a file or a run


def shipped_model(name: str = DEFAULT) -> Path:
    """Return the path of a model in the package.

    Args:
        name: ``shipped``, the model of the best scores, a Transformer; or
            ``shipped-lstm``, the paper's decoder.

    Raises:
        PretrainedModelError: the installation has no such model.
    """
    path = dict(zip(NAMES, (SHIPPED, SHIPPED_LSTM), strict=True))[name]
    if not path.is_file():
        raise PretrainedModelError(
            f"{path}: this installation has no pretrained model; train one and "
            "pass its file as --model"
        )
    return path


def model_path(name: str, runs_folder: str | Path) -> Path:
    """Return the file of a model.

    Args:
        name: one of :data:`NAMES`, or see :func:`config.runs.find_model`.
        runs_folder: the folder of all runs.

    Raises:
        PretrainedModelError: the installation has no such model, or a similar name was
            meant.
    """
    if name in NAMES:
        return shipped_model(name)
    from show_attend_tell.config import runs  # slow, and packaged models need none

    path = runs.find_model(name, runs_folder)
    models = Path(runs_folder).glob("*/*.keras")
    known = [*NAMES, *(model.parent.name for model in models)]
    if not path.exists() and (close := nearest(name, known)):
        raise PretrainedModelError(
            f"`model` must be a .keras file, a run or one of {', '.join(NAMES)}. "
            f"Received: {quote(name)}{close}; correct the name"
        )
    return path
