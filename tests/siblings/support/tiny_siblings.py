"""Models of digits and words, and what a training of a few updates shows of each."""

from collections.abc import Callable
from typing import NamedTuple

import made_up_digits
import pytest
import tiny_reader

from show_attend_tell.siblings.digits.draw import evaluation as drawing
from show_attend_tell.siblings.digits.draw import training as draw
from show_attend_tell.siblings.digits.draw.models import GENERATORS
from show_attend_tell.siblings.digits.ram import evaluation as classification
from show_attend_tell.siblings.digits.ram import training as ram
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.words import evaluation as reading
from show_attend_tell.siblings.words import training as words
from show_attend_tell.siblings.words.models import READERS

MODELS_OF = {models.task: models for models in (CLASSIFIERS, GENERATORS, READERS)}


class Sibling(NamedTuple):
    """A model, and what its training of a few updates shows.

    ``images`` are tags of figures in TensorBoard.
    """

    task: type
    train: Callable
    evaluate: Callable
    experiment: Callable
    settings: dict
    steps: int  # updates in the training
    scores: tuple[str, ...]  # of a validation, the metric first
    terms: tuple[str, ...]  # of an update
    images: tuple[str, ...]


SIBLINGS = {
    "ram": Sibling(
        ram.ClassificationTask,
        ram.train,
        classification.evaluate,
        made_up_digits.experiment,
        {
            "epochs": 40,
            "learning_rate": 0.01,
            "validate_every": 120,
            "checkpoint_every": 120,
        },
        steps=40 * 6,
        scores=("accuracy", "error", "error_sampled"),
        terms=("loss", "cross_entropy", "error", "reward", "baseline_error")
        + ("reinforce", "mean_size", "mean_far", "spread_1", "spread_2"),
        images=("glimpses",),
    ),
    "draw": Sibling(
        draw.GenerationTask,
        draw.train,
        drawing.evaluate,
        made_up_digits.drawing_experiment,
        {"epochs": 10, "validate_every": 30},
        steps=10 * 6,
        scores=("bound", "reconstruction", "divergence"),
        terms=("loss", "reconstruction", "divergence", "divergence_1", "divergence_2"),
        images=("canvas", "samples"),
    ),
    "words": Sibling(
        words.ReadTask,
        words.train,
        reading.evaluate,
        tiny_reader.experiment,
        {},
        steps=2 * 5,
        scores=("word_accuracy", "character_accuracy", "similarity"),
        terms=("loss", "word_loss", "character_loss"),
        images=("word/0",),
    ),
}
EVERY_SIBLING = pytest.mark.parametrize("name", SIBLINGS)
