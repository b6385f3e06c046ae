"""The trained model that comes with the package."""

from importlib.resources import files
from pathlib import Path

SHIPPED = Path(str(files(__package__))) / "weights" / "flickr8k.keras"
CARD = SHIPPED.with_name("MODEL_CARD.md")


class ShippedModelError(ValueError):
    """This installation has no model; the message is one line for the user."""


def shipped_model() -> Path:
    """Return the file of the shipped model.

    Raises:
        ShippedModelError: the installation holds none.
    """
    if not SHIPPED.is_file():
        raise ShippedModelError(
            f"{SHIPPED}: no model is shipped with this installation; train one and "
            "name its file with --model"
        )
    return SHIPPED
