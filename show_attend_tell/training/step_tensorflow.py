"""Compile the training step on TensorFlow: graphs, with parts compiled by XLA."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from show_attend_tell.config.settings import TrainingSettings
from show_attend_tell.models.captioner import Captioner


@functools.cache  # one function for all lengths: `compile_parts` compares them
def _compile_function(jit_compile: bool):
    """Return the function that compiles parts of a training step."""
    return functools.partial(tf.function, autograph=False, jit_compile=jit_compile)


def captioner_step(
    model: Captioner,
    settings: TrainingSettings,
    loss_of: Callable | None = None,
    teachers: Sequence[Captioner] = (),
) -> Callable:
    """Return a function that has a graph for each length of captions.

    Keras' own train function would be traced once for all lengths, with an unknown
    length, which XLA must know. See :func:`training.step.captioner_step`.
    """
    del teachers  # a graph reads their variables without being told
    graphs: dict[tuple, Callable] = {}

    def step(*batch):
        shape = tuple(batch[1].shape)  # of the targets, (B, T)
        if shape not in graphs:
            # A concrete function: a tf.function that is called itself warns of
            # retracing after a few lengths.
            function = compiled_step(model, settings, loss_of)
            graphs[shape] = function.get_concrete_function(*batch)
        return graphs[shape](*batch)

    return step


def compiled_step(
    model: Captioner,
    settings: TrainingSettings,
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


def total(values: np.ndarray) -> float:
    """See :func:`training.step.total`; there is one worker."""
    return float(np.sum(values))


def require_divisible(rows: int, name: str) -> None:
    """Accept every batch: the step runs on one device."""


def device_count() -> int:
    """See :func:`training.step.device_count`."""
    return 1


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
