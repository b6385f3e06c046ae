"""Define which models experiments that classify have, and the one in the package."""

from pathlib import Path

from show_attend_tell.siblings.common.models import TaskModels
from show_attend_tell.siblings.digits.classifier import PictureClassifier
from show_attend_tell.siblings.digits.draw.model import WindowClassifier
from show_attend_tell.siblings.digits.ram.model import RecurrentAttention

_CLASSES = (RecurrentAttention, PictureClassifier, WindowClassifier)


def _classifier_of(experiment):
    settings = experiment.model
    model = {each.settings_class: each for each in _CLASSES}[type(settings)]
    return model, {"settings": settings, "canvas": experiment.data.canvas}


CLASSIFIERS = TaskModels(
    task="classify",
    classes=_CLASSES,
    arguments_of=_classifier_of,
    shipped=Path(__file__).parents[1] / "weights" / "ram_mnist.safetensors",
)
