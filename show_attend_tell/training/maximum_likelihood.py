"""Train by the likelihood of given captions: the paper's L_d, Eq. (14), or L_s."""

from collections.abc import Callable, Iterator

from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.dataset import CaptionBatches, encode_captions
from show_attend_tell.data.photo_batches import PhotoBatches
from show_attend_tell.data.splits import Split
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.training.step import compiled_step
from show_attend_tell.training.workers import ALONE, Workers

FEW = 1000  # updates of a whole training below which captions have few lengths


class Likelihood:
    """Train on every caption of the training photos, once an epoch.

    Args:
        experiment: the settings.
        model: a built model, which is compiled before the first update.
        data: the training photos.
        readers: readers of their features, see :func:`data.dataset.read_views`.
        workers: the workers, each of which reads and computes its part of a batch.
        train_step: see :func:`training.step.compiled_step`.
    """

    def __init__(
        self,
        experiment: Experiment,
        model: Captioner,
        data: Split,
        readers,
        workers: Workers = ALONE,
        train_step: Callable | None = None,
    ):
        settings = experiment.training
        captions = encode_captions(
            data.captions, model.vocabulary, experiment.data.max_words
        )
        self.model = model
        few = len(captions.photos) * settings.epochs < FEW * settings.batch_size
        batches = CaptionBatches if model.convolutions is None else PhotoBatches
        self.batches = batches(
            captions,
            data.rows,
            readers,
            settings.batch_size,
            settings.seed,
            few,
            part=workers.part,
            weights=data.weights,
        )
        photos = self.batches.batch_size * self.batches.captions_per_row
        whole = photos == settings.batch_size and model.convolutions is None
        name = "training.batch_size" if whole else "photos of a batch"
        workers.require_divisible(self.batches.batch_size, name)
        self._step_arguments = model, settings, workers, train_step
        self._steps = {}  # number of words -> compiled step

    @property
    def steps(self) -> int:
        """Number of updates in an epoch."""
        return self.batches.steps

    @property
    def graphs(self) -> int:
        """Number of graphs compiled so far; it rises during an update that compiles."""
        return len(self._steps)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        for x, y in self.batches.prefetched(epoch, start):
            yield self._step_for(x, y)(x, y)

    def _step_for(self, x: dict, y) -> Callable:
        """Return the compiled training step for batches shaped like this one.

        Keras' own train function would be traced once for all lengths, with an
        unknown length, which XLA must know.
        """
        length = y.shape[1]
        if length not in self._steps:
            step = compiled_step(*self._step_arguments)
            self._steps[length] = step.get_concrete_function(x, y)
        return self._steps[length]
