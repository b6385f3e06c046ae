"""Return the path of the pretrained model in the package."""

from importlib.resources import files
from pathlib import Path

from show_attend_tell.runtime.errors import PretrainedModelError

SHIPPED = Path(str(files(__package__))) / "weights" / "flickr8k.keras"
CARD = SHIPPED.with_name("MODEL_CARD.md")


def shipped_model() -> Path:
    """Return the path of the shipped model.

    Raises:
        PretrainedModelError: the installation has no model.
    """
    if not SHIPPED.is_file():
        raise PretrainedModelError(
            f"{SHIPPED}: this installation has no pretrained model; train one and "
            "pass its file as --model"
        )
    return SHIPPED
