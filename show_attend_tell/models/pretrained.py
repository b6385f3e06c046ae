"""The trained model that comes with the package."""

from importlib.resources import files
from pathlib import Path

from show_attend_tell.runtime.errors import PretrainedModelError

SHIPPED = Path(str(files(__package__))) / "weights" / "flickr8k.keras"
CARD = SHIPPED.with_name("MODEL_CARD.md")


def shipped_model() -> Path:
    """Return the file of the shipped model.

    Raises:
        PretrainedModelError: the installation holds none.
    """
    if not SHIPPED.is_file():
        raise PretrainedModelError(
            f"{SHIPPED}: no model is shipped with this installation; train one and "
            "name its file with --model"
        )
    return SHIPPED
