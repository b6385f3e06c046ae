"""Train by the likelihood of given captions: the paper's L_d, Eq. (14), or L_s.

The compiled step, for one worker or for several, serves every objective.
"""

import functools
from collections.abc import Callable, Iterator

import tensorflow as tf

from show_attend_tell.config.settings import Experiment, TrainingSettings
from show_attend_tell.data.dataset import CaptionBatches, encode_captions
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import PAD
from show_attend_tell.models.captioner import Captioner
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
        train_step: see :func:`compiled_step`.
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
        self.batches = CaptionBatches(
            captions,
            data.rows,
            readers,
            settings.batch_size,
            settings.seed,
            few,
            part=workers.part,
            weights=data.weights,
        )
        workers.require_divisible(settings.batch_size, "training.batch_size")
        self._step_arguments = model, settings, workers, train_step
        self._steps = {}  # number of words -> compiled step

    @property
    def steps(self) -> int:
        """Number of updates in an epoch."""
        return self.batches.steps

    @property
    def graphs(self) -> int:
        """Number of graphs compiled so far, one for each length."""
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


@functools.cache  # one function for all lengths: `compile_parts` compares them
def compile_function(jit_compile: bool):
    """Return the function that compiles parts of a training step."""
    return functools.partial(tf.function, autograph=False, jit_compile=jit_compile)


def compiled_step(
    model: Captioner,
    settings: TrainingSettings,
    workers: Workers = ALONE,
    train_step: Callable | None = None,
):
    """Return the model's compiled training step, which returns a batch's metrics.

    On a CPU, and with bfloat16, XLA compiles parts of the step, otherwise all of it;
    see :meth:`Captioner.compile_parts`.

    Args:
        model: a compiled model.
        settings: the settings of training.
        workers: the workers that share a batch.
        train_step: function of a batch that updates the model and returns metrics;
            by default the model's own. Several workers ignore it.
    """
    compile_fn = compile_function(settings.jit_compile)
    whole = settings.precision == "float32" and tf.config.list_physical_devices("GPU")
    if not whole:
        model.compile_parts(compile_fn, settings.precision)
        model.optimizer.compile_apply(compile_fn)
    if workers.count > 1:
        shared = _shared_step(model, workers, compile_fn if whole else None)
        return tf.function(shared, autograph=False)
    train_step = train_step or model.train_step

    def step(*data):
        model.reset_metrics()
        return train_step(data)

    return compile_fn(step) if whole else tf.function(step, autograph=False)


def _shared_step(
    model: Captioner, workers: Workers, compile_fn: Callable | None
) -> Callable:
    """Return a function that applies an update from the parts of a batch.

    It returns metrics and ``loss`` of the global batch. `compile_fn`, if any, compiles
    the gradient.
    """
    weights = model.trainable_weights

    def measure(x, targets, weight=None):
        """Return B_r g_r of each weight, B_r times the loss, and B_r."""
        present = tf.reduce_any(tf.not_equal(targets, PAD), axis=1)  # (B_r,)
        captions = tf.reduce_sum(tf.cast(present, tf.float32))
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            # Scale the loss: scaling the gradients would write another 30 MB.
            loss = captions * model.compute_loss(
                x, targets, outputs, weight, training=True
            )
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        # Reshaped to tensors: TensorFlow returns the embedding's gradient as slices.
        return *(tf.reshape(g, g.shape) for g in gradients), loss, captions

    measure = compile_fn(measure) if compile_fn else measure

    def step(*batch):
        model.reset_metrics()
        measured = measure(*batch)
        metrics = [v for metric in model.metrics for v in metric.variables]
        parts = [*measured, workers.ending, *(metric.value for metric in metrics)]
        reduced = workers.sum([tf.convert_to_tensor(value) for value in parts])
        count = len(measured)
        *sums, loss, captions = reduced[:count]
        workers.ended.assign(reduced[count])
        for variable, value in zip(metrics, reduced[count + 1 :], strict=True):
            variable.assign(value)
        if model.hard_attention is not None:
            model.hard_attention.move_baseline()
        captions = tf.maximum(captions, 1.0)
        model.optimizer.apply([gradient / captions for gradient in sums])
        return {**model.get_metrics_result(), "loss": loss / captions}

    return step
