"""Build and load the models of ``task = "generate"``."""

from pathlib import Path

from show_attend_tell.config.siblings import GenerationExperiment
from show_attend_tell.siblings import model_files
from show_attend_tell.siblings.draw.model import Draw


def build_model(experiment: GenerationExperiment) -> Draw:
    """Return the untrained model of an experiment."""
    side = experiment.data.canvas
    return Draw(experiment.draw, side, side, experiment.training.seed)


def load_model(path: Path, experiment: GenerationExperiment | None = None) -> Draw:
    """Load a model that generates; given an experiment, require its settings.

    Raises:
        ModelFileError: the file is absent, damaged, or another model's.
    """
    expected = {}
    if experiment is not None:
        side = experiment.data.canvas
        expected = {"settings": experiment.draw, "height": side, "width": side}
    return model_files.load_model(path, Draw, "generate", expected)
