"""Compile the training step of a captioner, for one worker or for several."""

import functools
from collections.abc import Callable

import tensorflow as tf

from show_attend_tell.config.settings import TrainingSettings
from show_attend_tell.data.vocabulary import PAD
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.training.workers import ALONE, Workers


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
        step = _shared_step(model, workers, compile_fn if whole else None)
        return tf.function(step, autograph=False)
    train_step = train_step or model.train_step

    def step(*data):
        model.reset_metrics()
        return train_step(data)

    return compile_fn(step) if whole else tf.function(step, autograph=False)


def _shared_step(
    model: Captioner, workers: Workers, compile_fn: Callable | None
) -> Callable:
    """Return a function that applies an update from the parts of a batch.

    Args:
        model: a compiled model.
        workers: the workers, more than one.
        compile_fn: compiles the gradient; None: it stays as it is.

    Returns:
        A function that returns metrics and ``loss`` of the global batch.
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
