"""Train a reader of words."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from keras import StatelessScope, ops

from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.runtime.backend import UNROLLED, compiled
from show_attend_tell.siblings.common.layers import SiblingModel
from show_attend_tell.siblings.common.training import (
    SiblingTask,
    train_task,
    verify_task,
)
from show_attend_tell.siblings.words.augmentation import (
    Changes,
    draw_changes,
    normalised,
)
from show_attend_tell.siblings.words.data import (
    PAD,
    STEPS,
    WordData,
    encode_words,
    read_split,
    tokens_of,
)
from show_attend_tell.siblings.words.evaluation import score_words
from show_attend_tell.siblings.words.figures import draw_reading
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.models import READERS
from show_attend_tell.siblings.words.reading import Reading, best_readings
from show_attend_tell.siblings.words.settings import ReadExperiment
from show_attend_tell.siblings.words.step import reading_step
from show_attend_tell.training.divergence import MonitoredLoss
from show_attend_tell.training.tensorboard_log import CurveLog

SHOWN = 4  # validation crops whose attention is shown in TensorBoard
DPI = 60  # resolution of these figures, so that a run stays small
# A batch is read in two parts: this share of its words, the shortest, and the others.
# Each part has the smallest of these numbers of characters, <end> included, that its
# words need. Each pair of numbers has its own graph.
_SHORT = 0.75
LENGTHS = (8, UNROLLED, STEPS)
_ESTIMATING = 40  # batches that measure the statistics of the averaged weights


class Batch(NamedTuple):
    """The crops of an update."""

    crops: np.ndarray  # (B, 32, 100) uint8, the crops of shorter words first
    parts: tuple[np.ndarray, ...]  # targets of the first crops and of the others
    changes: Changes | tuple  # empty without augmentation


class ReadTask(SiblingTask[WordData]):
    """The training of a reader.

    Args:
        experiment: the settings.
        data: the training words.
        validation: the validation words.
    """

    other = "other words"
    models = READERS
    read_split = staticmethod(read_split)

    def __init__(
        self, experiment: ReadExperiment, data: WordData, validation: WordData
    ):
        super().__init__(experiment, data, validation)
        self.targets = encode_words(data.words, data.characters)  # (N, 24)
        self.monitored = MonitoredLoss(
            classes=len(tokens_of(data.characters)),
            key="character_loss",
            noun="loss per character",
            inputs="crops",
        )
        self._search: Searcher | None = None
        self._readings: list[Reading] = []  # of the last validation

    def arguments_of_data(self) -> dict[str, object]:
        """Return the alphabet of the words, as an argument of the model."""
        return {"characters": self.data.characters}

    def make_step(self) -> Callable:
        """Return the step of a :class:`Batch`."""
        return reading_step(self.model, self.settings)

    @classmethod
    def fit_data(cls, data: WordData, initial: SiblingModel) -> WordData:
        """Return the words with the initial model's alphabet, and what it lacks."""
        known = initial.characters
        further = [c for c in data.characters if c not in known]
        return dataclasses.replace(data, characters=known + "".join(further))

    def make_batch(self, rows: np.ndarray, seed: list[int]) -> Batch:
        """Return crops with the shortest words first, and their random changes."""
        lengths = np.sum(self.targets[rows] != PAD, axis=1)
        rows = rows[np.argsort(lengths, kind="stable")]
        # Not None, which `to_device` would take for an array.
        changes = ()
        if self.settings.augment:
            changes = draw_changes(np.random.default_rng(seed), len(rows))
        return Batch(self.data.images[rows], split_targets(self.targets[rows]), changes)

    def estimate_statistics(self, model: Reader) -> None:
        """Measure the statistics of batch normalisation for a model's own weights.

        A training step stores the statistics of the last weights; the averaged weights,
        which are validated and saved, have different sums. The crops of some batches,
        unchanged, measure them, so the result depends only on the weights.
        """
        if not model.settings.batch_norm:
            return
        encoder = model.encoder

        def statistics_of(crops):
            # With momentum 0 the layers store the statistics of the batch alone. The
            # scope keeps what they store, because a compiled function may lose
            # assignments to variables.
            with StatelessScope() as scope:
                encoder(normalised(crops)[..., None], training=True, momentum=0.0)
                return [
                    tuple(scope.get_current_value(each) for each in pair)
                    for pair in encoder.statistics
                ]

        measure = compiled(statistics_of, model, xla=False)

        # Further epochs if one has fewer batches than are needed.
        epochs = (self.batches(epoch) for epoch in itertools.count())
        batches = itertools.chain.from_iterable(epochs)
        measured = [
            measure(ops.convert_to_tensor(crops))
            for crops, _, _ in itertools.islice(batches, _ESTIMATING)
        ]
        layers = zip(encoder.statistics, *measured, strict=True)
        for (mean, variance), *pairs in layers:
            means, variances = (np.array(values) for values in zip(*pairs, strict=True))
            mean.assign(means.mean(axis=0))
            # Within the batches, and between them.
            variance.assign(variances.mean(axis=0) + means.var(axis=0))

    def validate(self, model: Reader, step: int) -> dict[str, float]:
        """Return the scores of greedy words on the validation crops, in percent.

        The statistics of the model's batch normalisation are measured anew.
        """
        if step:  # an initial model has measured statistics
            self.estimate_statistics(model)
        # The loop validates the same copy every time, so that one graph serves all.
        if self._search is None:
            self._search = Searcher(model)
        self._readings = best_readings(self._search, self.validation.images)
        words = [reading.word for reading in self._readings]
        scores = score_words(words, self.validation.words)
        names = ("word_accuracy", "character_accuracy", "similarity")
        return {name: scores[name] for name in names}

    def show(self, log: CurveLog, model: Reader, step: int) -> None:
        """Log the words of the first validation crops, and their attention."""
        for row, reading in enumerate(self._readings[:SHOWN]):
            right = self.validation.words[row]
            log.writer.text(step, f"word/{row}", f"{right}: {reading.word}")
            if reading.attention is not None and reading.word:
                pixels = figure_to_array(draw_reading(reading), DPI)
                log.writer.image(step, f"attention/{row}", pixels)


def split_targets(targets: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the two parts of a batch, each as short as its words allow.

    Args:
        targets: (B, 24), the targets of shorter words first.

    Returns:
        Arrays (n, T), with T from :data:`LENGTHS`; one array if the batch is too small
        for two.
    """
    lengths = np.sum(targets != PAD, axis=1)
    # A set, because a batch of one word has no first part: int(0.75) is 0.
    edges = sorted({0, int(_SHORT * len(lengths)), len(lengths)})
    return tuple(
        # The last word of a part is its longest.
        targets[first:last, : next(T for T in LENGTHS if lengths[last - 1] <= T)]
        for first, last in itertools.pairwise(edges)
    )


train = functools.partial(train_task, ReadTask)
verify = functools.partial(verify_task, ReadTask)
