"""Define which models experiments on digits have, and the models in the package."""

from pathlib import Path

from show_attend_tell.siblings.common.models import TaskModels
from show_attend_tell.siblings.digits.classifier import PictureClassifier
from show_attend_tell.siblings.digits.draw.model import Draw, WindowClassifier
from show_attend_tell.siblings.digits.ram.model import RecurrentAttention

_WEIGHTS = Path(__file__).parent / "weights"
_CLASSIFIERS = (RecurrentAttention, PictureClassifier, WindowClassifier)


def _classifier_of(experiment):
    settings = experiment.model
    model = {each.settings_class: each for each in _CLASSIFIERS}[type(settings)]
    return model, {"settings": settings, "canvas": experiment.data.canvas}


def _generator_of(experiment):
    side = experiment.data.canvas
    return Draw, {"settings": experiment.draw, "height": side, "width": side}


CLASSIFIERS = TaskModels(
    "classify", _CLASSIFIERS, _classifier_of, _WEIGHTS / "ram_mnist.keras"
)
GENERATORS = TaskModels(
    "generate", (Draw,), _generator_of, _WEIGHTS / "draw_mnist.keras"
)
