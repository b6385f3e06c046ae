"""Build and load the readers of ``task = "read"``."""

from pathlib import Path

from show_attend_tell.config.words import ReadExperiment
from show_attend_tell.siblings import model_files
from show_attend_tell.siblings.words.model import Reader


def build_model(experiment: ReadExperiment) -> Reader:
    """Return the untrained model of an experiment."""
    return Reader(experiment.reader, experiment.training.seed)


def load_model(path: Path, experiment: ReadExperiment | None = None) -> Reader:
    """Load a reader; given an experiment, require its settings.

    Raises:
        ModelFileError: the file is absent, damaged, or another model's.
    """
    expected = {} if experiment is None else {"settings": experiment.reader}
    return model_files.load_model(path, Reader, "read", expected)
