"""Train by the likelihood of given captions: the paper's L_d, Eq. (14), or L_s."""

import functools
from collections.abc import Callable, Iterator

import tensorflow as tf

from show_attend_tell.config.settings import Experiment, TrainingSettings
from show_attend_tell.data.dataset import CaptionBatches, encode_captions
from show_attend_tell.data.photo_batches import PhotoBatches
from show_attend_tell.data.splits import Split
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.training.workers import ALONE, Workers, make_worker_step

FEW = 1000  # updates of a whole training below which captions have few lengths


class Likelihood:
    """Train on every caption of the training photos, once an epoch.

    Args:
        experiment: the settings.
        model: a built model, which is compiled before the first update.
        data: the training photos.
        readers: readers of their features, see :func:`data.dataset.read_views`.
        train_step: see :func:`compiled_step`.
        workers: the workers, each of which reads and computes its part of a batch.
    """

    def __init__(
        self,
        experiment: Experiment,
        model: Captioner,
        data: Split,
        readers,
        train_step=None,
        workers: Workers = ALONE,
    ):
        settings = experiment.training
        captions = encode_captions(
            data.captions, model.vocabulary, experiment.data.max_words
        )
        self.model, self.settings, self.workers = model, settings, workers
        few = len(captions.photos) * settings.epochs < FEW * settings.batch_size
        batches = CaptionBatches if model.convolutions is None else PhotoBatches
        self.batches = batches(
            *(captions, data.rows, readers, settings.batch_size, settings.seed, few),
            part=workers.part,
            weights=data.weights,
        )
        photos = self.batches.batch_size * self.batches.captions_per_row
        whole = photos == settings.batch_size and model.convolutions is None
        name = "training.batch_size" if whole else "photos of a batch"
        workers.require_divisible(self.batches.batch_size, name)
        self._train_step, self._step_functions = train_step, {}

    @property
    def steps(self) -> int:
        """Number of updates in an epoch."""
        return self.batches.steps

    @property
    def graphs(self) -> int:
        """Number of graphs compiled so far; it rises during an update that compiles."""
        return len(self._step_functions)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        for x, y in self.batches.prefetched(epoch, start):
            yield self._step_function(x, y)(x, y)

    def _step_function(self, x: dict, y):
        """Return the compiled training step for batches shaped like this one.

        Keras' own train function would be traced once for all lengths, with an
        unknown length, which XLA must know.
        """
        length = y.shape[1]
        if length not in self._step_functions:
            function = compiled_step(
                self.model, self.settings, self._train_step, self.workers
            )
            self._step_functions[length] = function.get_concrete_function(x, y)
        return self._step_functions[length]


@functools.cache  # one function for all lengths: `compile_parts` compares them
def compile_function(jit_compile: bool):
    """Return the function that compiles parts of a training step."""
    return functools.partial(tf.function, autograph=False, jit_compile=jit_compile)


def compiled_step(
    model: Captioner,
    settings: TrainingSettings,
    train_step=None,
    workers: Workers = ALONE,
    compute_loss: Callable | None = None,
):
    """Return the model's compiled training step, which returns a batch's metrics.

    On a CPU, and with bfloat16, XLA compiles parts of the step, otherwise all of it;
    see :meth:`Captioner.compile_parts`.

    Args:
        model: a compiled model.
        settings: the settings of training.
        train_step: function of a batch that updates the model and returns metrics;
            by default the model's own.
        workers: the workers; several ignore `train_step`.
        compute_loss: the loss of several workers' step, see :func:`make_worker_step`.
    """
    compile_fn = compile_function(settings.jit_compile)
    whole = settings.precision == "float32" and tf.config.list_physical_devices("GPU")
    if not whole:
        model.compile_parts(compile_fn, settings.precision)
        model.optimizer.compile_apply(compile_fn)
    if workers.count > 1:
        wrap = compile_fn if whole else None
        step = make_worker_step(model, workers, compute_loss, wrap)
        return tf.function(step, autograph=False)
    train_step = train_step or model.train_step

    def step(*data):
        model.reset_metrics()
        return train_step(data)

    return compile_fn(step) if whole else tf.function(step, autograph=False)
