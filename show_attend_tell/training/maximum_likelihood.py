"""Train by the likelihood of given captions: the paper's L_d, Eq. (14), or L_s."""

from collections.abc import Callable, Iterator, Sequence

from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.dataset import (
    CaptionBatches,
    FeatureViews,
    encode_captions,
    shown_items,
)
from show_attend_tell.data.splits import Split
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.training.step import (
    captioner_step,
    require_divisible,
    to_device,
)
from show_attend_tell.training.workers import ALONE, Workers

# Updates of a whole training below which captions are padded to few lengths: compiling
# a length would take longer than the steps it saves.
FEW_UPDATES = 1000


class Likelihood:
    """Train on every caption of the training photos, once an epoch.

    Args:
        experiment: the settings.
        model: a built model, which is compiled before the first update.
        data: the training photos.
        views: their features.
        workers: the workers, each of which reads and computes its share of a batch.
        loss_of: see :func:`training.step.captioner_step`.
        teachers: see :func:`training.step.captioner_step`.
    """

    def __init__(
        self,
        experiment: Experiment,
        model: Captioner,
        data: Split,
        views: FeatureViews,
        workers: Workers = ALONE,
        loss_of: Callable | None = None,
        teachers: Sequence[Captioner] = (),
    ):
        settings = experiment.training
        captions = encode_captions(
            data.captions, model.vocabulary, experiment.data.max_words
        )
        self.model = model
        # (photos,) -> (captions,)
        weights = data.weights[captions.photos]
        shown = len(shown_items(weights, settings.seed, 0))  # the same in all epochs
        updates = shown * settings.epochs / settings.batch_size
        self.batches = CaptionBatches(
            captions,
            data.rows,
            views,
            settings.batch_size,
            settings.seed,
            few_lengths=updates < FEW_UPDATES,
            share=workers.share,
            weights=data.weights,
        )
        require_divisible(settings.batch_size, "training.batch_size")
        self._settings = settings
        self._loss_of = loss_of
        self._teachers = teachers
        self._step: Callable | None = None  # made when the model is compiled
        self._lengths: set[int] = set()  # of the captions so far

    @property
    def steps(self) -> int:
        """Number of updates in an epoch."""
        return self.batches.steps

    @property
    def graphs(self) -> int:
        """Number of graphs compiled so far, one for each length."""
        return len(self._lengths)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        for x, y in self.batches.prefetched(epoch, start, to_device):
            yield self._update(x, y)

    def _update(self, x: dict, targets) -> dict:
        """Apply an update; return values to log."""
        # Not in `__init__`: the model is compiled after the objective is made.
        if self._step is None:
            self._step = captioner_step(
                self.model, self._settings, self._loss_of, self._teachers
            )
        self._lengths.add(targets.shape[1])
        return self._step(x, targets)
