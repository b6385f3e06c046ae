"""Build a training step from a loss that is not the captioner's own."""

from collections.abc import Callable

import tensorflow as tf

from show_attend_tell.models.captioner import Captioner


def make_train_step(model: Captioner, compute_loss: Callable) -> Callable:
    """Return a function of a batch that applies the gradient of a loss.

    It is ``Model.train_step`` with the loss as an argument.

    Args:
        model: a compiled model, whose metrics ``compute_loss`` may update.
        compute_loss: returns the loss () of the batch's parts.

    Returns:
        A function of the tuple of the parts, which returns the metrics and ``loss``.
    """

    def train_step(data: tuple) -> dict:
        with tf.GradientTape() as tape:
            loss = compute_loss(*data)
            scaled = model.optimizer.scale_loss(loss)
        weights = model.trainable_weights
        gradients = tape.gradient(scaled, weights)
        model.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return {**model.get_metrics_result(), "loss": loss}

    return train_step
