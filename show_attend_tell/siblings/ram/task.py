"""Build and load the classifiers of ``task = "classify"``."""

from pathlib import Path

from show_attend_tell.config.siblings import DigitExperiment
from show_attend_tell.data.digits import CLASSES
from show_attend_tell.siblings import model_files
from show_attend_tell.siblings.classifier import DigitClassifier, PictureClassifier
from show_attend_tell.siblings.draw.classifier import WindowClassifier
from show_attend_tell.siblings.ram.model import RecurrentAttention

MODELS = (RecurrentAttention, PictureClassifier, WindowClassifier)


def build_model(experiment: DigitExperiment) -> DigitClassifier:
    """Return the untrained model of an experiment."""
    settings = experiment.model
    (model,) = (each for each in MODELS if isinstance(settings, each.settings_class))
    return model(settings, experiment.data.canvas, CLASSES, experiment.training.seed)


def load_model(
    path: Path, experiment: DigitExperiment | None = None
) -> DigitClassifier:
    """Load a classifier; given an experiment, require its settings.

    Raises:
        ModelFileError: the file is absent, damaged, or another model's.
    """
    expected = {}
    if experiment is not None:
        expected = {"settings": experiment.model, "canvas": experiment.data.canvas}
    return model_files.load_model(path, MODELS, "classify", expected)
