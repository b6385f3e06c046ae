"""Compile the training step on TensorFlow: graphs, with parts compiled by XLA."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from show_attend_tell.config.settings import TrainingSettings
from show_attend_tell.data.vocabulary import PAD
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.training.likelihood import likelihood
from show_attend_tell.training.workers import ALONE, Workers


@functools.cache  # one function for all lengths: `compile_parts` compares them
def _compile_function(jit_compile: bool):
    """Return the function that compiles parts of a training step."""
    return functools.partial(tf.function, autograph=False, jit_compile=jit_compile)


def captioner_step(
    model: Captioner,
    settings: TrainingSettings,
    workers: Workers = ALONE,
    loss_of: Callable | None = None,
) -> Callable:
    """Return a function that has a graph for each length of captions.

    Keras' own train function would be traced once for all lengths, with an unknown
    length, which XLA must know. See :func:`training.step.captioner_step`.
    """
    graphs: dict[tuple, Callable] = {}

    def step(*batch):
        shape = tuple(batch[1].shape)  # of the targets, (B, T)
        if shape not in graphs:
            function = compiled_step(model, settings, workers, loss_of)
            graphs[shape] = function.get_concrete_function(*batch)
        return graphs[shape](*batch)

    return step


def compiled_step(
    model: Captioner,
    settings: TrainingSettings,
    workers: Workers = ALONE,
    loss_of: Callable | None = None,
):
    """Return a ``tf.function`` of a batch that updates the model and returns metrics.

    On a CPU, and with bfloat16, XLA compiles parts of the step, otherwise all of it;
    see :meth:`Captioner.compile_parts`, and :func:`training.step.captioner_step` for
    the arguments.
    """
    compile_fn = _compile_function(settings.jit_compile)
    whole = settings.precision == "float32" and tf.config.list_physical_devices("GPU")
    if not whole:
        compile_parts(model, settings)
        model.optimizer.compile_apply(compile_fn)
    if workers.count > 1:
        shared = _shared_step(model, workers, compile_fn if whole else None)
        return tf.function(shared, autograph=False)

    def step(*batch):
        model.reset_metrics()
        if loss_of is None:
            return model.train_step(batch)
        return _step_of_loss(model, loss_of, batch)

    return compile_fn(step) if whole else tf.function(step, autograph=False)


def compile_parts(model: Captioner, settings: TrainingSettings) -> None:
    """See :func:`training.step.compile_parts`."""
    compile_fn = _compile_function(settings.jit_compile)
    model.compile_parts(compile_fn, settings.precision)


def _step_of_loss(model: Captioner, loss_of: Callable, batch: tuple) -> dict:
    """Apply the gradient of a loss; return metrics."""
    with tf.GradientTape() as tape:
        loss = loss_of(*batch)
        scaled = model.optimizer.scale_loss(loss)
    weights = model.trainable_weights
    gradients = tape.gradient(scaled, weights)
    model.optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return {**model.get_metrics_result(), "loss": loss}


class _Sums(NamedTuple):
    """What a worker adds to the sums of all workers, or the sums themselves."""

    gradients: list  # B_r g_r of each weight
    loss: Any  # B_r times the mean loss
    captions: Any  # B_r
    ending: Any  # 1 if the worker was asked to end
    metrics: list  # their variables, sums and counts


def _shared_step(
    model: Captioner, workers: Workers, compile_fn: Callable | None
) -> Callable:
    """Return a function that applies an update from the shares of a batch.

    It returns metrics and ``loss`` of the global batch; :mod:`training.workers` has the
    equation. `compile_fn`, if any, compiles the gradient.
    """
    weights = model.trainable_weights

    def measure(x, targets, weight=None):
        """Return gradients, loss and captions of :class:`_Sums`."""
        present = tf.reduce_any(tf.not_equal(targets, PAD), axis=1)  # (B_r,)
        captions = tf.reduce_sum(tf.cast(present, tf.float32))
        with tf.GradientTape() as tape:
            # Scale the loss: scaling the gradients would write another 30 MB.
            loss = captions * likelihood(model, x, targets, weight)
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        # Reshaped to tensors: TensorFlow returns the embedding's gradient as slices.
        return [tf.reshape(g, g.shape) for g in gradients], loss, captions

    measure = compile_fn(measure) if compile_fn else measure

    def step(*batch):
        model.reset_metrics()
        gradients, loss, captions = measure(*batch)
        # After the measurement, which updates them.
        metrics = [v for metric in model.metrics for v in metric.variables]
        own = _Sums(
            gradients,
            loss,
            captions,
            tf.convert_to_tensor(workers.ending),
            [tf.convert_to_tensor(metric.value) for metric in metrics],
        )
        added = workers.sum(tf.nest.flatten(own))
        sums = tf.nest.pack_sequence_as(own, added)
        workers.ended.assign(sums.ending)
        for variable, value in zip(metrics, sums.metrics, strict=True):
            variable.assign(value)
        if model.hard_attention is not None:
            model.hard_attention.move_baseline()
        count = tf.maximum(sums.captions, 1.0)
        model.optimizer.apply([gradient / count for gradient in sums.gradients])
        return {**model.get_metrics_result(), "loss": sums.loss / count}

    return step


def model_step(
    model: keras.Model,
    values_of: Callable[..., dict],
    jit_compile: bool,
    noise_of: Callable | None = None,
) -> Callable:
    """See :func:`training.step.model_step`."""
    weights = [weight.value for weight in model.trainable_weights]

    def step(*batch):
        with tf.GradientTape() as tape:
            values = values_of(*batch)
        zero = tf.UnconnectedGradients.ZERO  # of weights that no term reaches
        gradients = tape.gradient(values["loss"], weights, unconnected_gradients=zero)
        model.optimizer.apply(gradients)
        return values

    update = tf.function(step, autograph=False, jit_compile=jit_compile)
    if noise_of is None:
        return update

    def draw_and_update(*batch):
        return update(*batch, noise_of(*batch))

    return tf.function(draw_and_update, autograph=False)


def to_device(batch: Any) -> Any:
    """See :func:`training.step.to_device`; TensorFlow chooses the device itself."""
    return tf.nest.map_structure(tf.constant, batch)


def require_divisible(rows: int, name: str) -> None:
    """Accept every batch: the step runs on one device."""


def describe_devices() -> str:
    """See :func:`training.step.describe_devices`."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return "1 device (cpu)"
    if len(gpus) == 1:
        return "1 device (GPU)"
    return (
        f"1 of {len(gpus)} GPUs; to train on all, run pip install "
        "'show-attend-tell[jax]' and 'jax[cuda12]', and set KERAS_BACKEND=jax"
    )


def free_memory() -> None:
    """See :func:`training.step.free_memory`."""
