"""Train a reader of words."""

import functools
import hashlib
from pathlib import Path
from typing import Self

import numpy as np
import tensorflow as tf

from show_attend_tell.config import runs
from show_attend_tell.config.words import ReadExperiment
from show_attend_tell.data.characters import TOKENS
from show_attend_tell.data.words import WordData
from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.siblings.training import SiblingTask, train_task
from show_attend_tell.siblings.words.figures import draw_reading
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.reading import best_readings
from show_attend_tell.siblings.words.scoring import score_words
from show_attend_tell.siblings.words.task import build_model, load_model
from show_attend_tell.siblings.words.updates import WordUpdates
from show_attend_tell.training.tensorboard_log import CurveLog

SHOWN = 4  # validation crops whose attention is shown in TensorBoard
DPI = 60  # resolution of those figures, so that a run stays small
_ROWS = 4096  # crops in memory together


class ReadTask(SiblingTask):
    """The training of a reader, see :class:`training.loop.Task`.

    Args:
        experiment: the settings.
        data: the training words.
        validation: the validation words.
        initial: file of the model to start from; None for random weights.
    """

    build_model = staticmethod(build_model)
    other = "other words"
    monitored = {
        "words": len(TOKENS),
        "key": "character_loss",
        "noun": "loss per character",
        "inputs": "crops",
    }

    @classmethod
    def open(cls, experiment: ReadExperiment, folder: Path, runs_folder: Path) -> Self:
        """Open the words of a prepared folder, and find the initial model."""
        data, validation = (WordData.open(folder, split) for split in ("train", "val"))
        source = experiment.training.init_from
        initial = runs.find_model(source, runs_folder) if source else None
        return cls(experiment, data, validation, initial)

    def __init__(
        self,
        experiment: ReadExperiment,
        data: WordData,
        validation: WordData,
        initial: Path | None = None,
    ):
        super().__init__(experiment, digest_of(data))
        self.validation = validation
        self.starts_trained = self.start_counts = initial is not None
        if initial is not None:
            copy_weights(initial, self.model)
        self.objective = WordUpdates(experiment, self.model, data)
        self._search, self._readings = None, []

    def validate(self, model: Reader, step: int) -> dict[str, float]:
        """Return the scores of greedy words on the validation crops, in percent.

        Args:
            model: the model, the same model in every call; its statistics of batch
                normalisation are measured anew.
            step: the number of updates before.
        """
        if step:  # an initial model has measured statistics
            self.objective.estimate_statistics(model)
        self._search = self._search or Searcher(model)
        self._readings = best_readings(self._search, self.validation.images)
        words = [reading.word for reading in self._readings]
        scores = score_words(words, self.validation.words)
        return {
            "word_accuracy": scores.word_accuracy,
            "character_accuracy": scores.character_accuracy,
            "similarity": scores.similarity,
        }

    def show(self, log: CurveLog, model: Reader, step: int) -> None:
        """Log the words of the first validation crops, and their attention."""
        with log.writer.as_default(step=step):
            for row, reading in enumerate(self._readings[:SHOWN]):
                right = self.validation.words[row]
                tf.summary.text(f"word/{row}", f"{right}: {reading.word}")
                if reading.attention is not None and reading.word:
                    image = figure_to_array(draw_reading(reading), DPI)[None]
                    tf.summary.image(f"attention/{row}", image)


def digest_of(data: WordData) -> str:
    """Return a digest of words and pixels; it takes a second per gigabyte."""
    digest = hashlib.sha256("\n".join(data.words).encode())
    for first in range(0, len(data), _ROWS):
        digest.update(np.ascontiguousarray(data.images[first : first + _ROWS]).data)
    return digest.hexdigest()


def copy_weights(path: Path, model: Reader) -> None:
    """Set the weights of a reader to those of a model file.

    Raises:
        ModelFileError: the file is absent, damaged, or of other settings.
    """
    source = load_model(path)
    if source.settings != model.settings:
        raise ModelFileError(
            f"{path}: must have the settings of [reader] of the experiment; restore "
            "them, or start from another model"
        )
    model.set_weights(source.get_weights())


train = functools.partial(train_task, ReadTask)
