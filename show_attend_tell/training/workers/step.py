"""Compile the update of one worker of several.

Worker r has B_r captions of the global batch, and g_r, the gradient of their mean loss.
The update applies the gradient of the mean loss of all captions::

    g = sum_r B_r g_r / sum_r B_r

Clipping, the norm that is logged, and the average of weights (EMA) are those of g, as
the optimiser sees nothing else. Metrics hold sums and their counts, which are added.
"""

from collections.abc import Callable

import tensorflow as tf

from show_attend_tell.config.settings import TrainingSettings
from show_attend_tell.data.vocabulary import PAD
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.runtime.errors import ConfigError
from show_attend_tell.training.workers.group import Workers

OBJECTIVES = ("likelihood", "cider")


def require_objective(settings: TrainingSettings, workers: Workers) -> None:
    """Raise a ConfigError if several workers cannot train the objective."""
    if workers.count > 1 and settings.objective not in OBJECTIVES:
        raise ConfigError(
            f"`training.objective` must be {' or '.join(OBJECTIVES)} on several "
            f"workers. Received: {settings.objective!r}; train it on one machine"
        )


def make_worker_step(
    model: Captioner,
    workers: Workers,
    compute_loss: Callable | None = None,
    compile_fn: Callable | None = None,
) -> Callable:
    """Return a function of the parts of a batch that applies an update.

    Args:
        model: a compiled model.
        workers: the workers, more than one.
        compute_loss: returns the mean loss () of a batch's captions, by default the
            model's own. Its arguments are inputs of the model, targets, and more.
        compile_fn: compiles the gradient, if given.

    Returns:
        A function that returns metrics and ``loss`` of the global batch.
    """
    weights = model.trainable_weights

    def own_loss(x, targets, weight=None):
        outputs = model(x, training=True)
        return model.compute_loss(x, targets, outputs, weight, training=True)

    def measure(*batch):
        """Return B_r g_r of each weight, B_r times the loss, and B_r."""
        present = tf.reduce_any(tf.not_equal(batch[1], PAD), axis=1)  # (B_r,)
        captions = tf.reduce_sum(tf.cast(present, tf.float32))
        with tf.GradientTape() as tape:
            # Of the loss, as B_r times the gradients would be another 30 MB to write.
            loss = captions * (compute_loss or own_loss)(*batch)
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        # Reshaped to tensors: TensorFlow returns the embedding's gradient as slices.
        return *(tf.reshape(g, g.shape) for g in gradients), loss, captions

    measure = compile_fn(measure) if compile_fn else measure

    def step(*batch):
        model.reset_metrics()
        measured = measure(*batch)
        metrics = [v for metric in model.metrics for v in metric.variables]
        own = [*measured, workers.ending, *(metric.value for metric in metrics)]
        reduced = workers.sum([tf.convert_to_tensor(value) for value in own])
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
