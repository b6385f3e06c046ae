"""The optimisers of the experiments, each of which remembers its gradient's norm."""

import keras
from keras import ops

from show_attend_tell.config.settings import TrainingSettings


class _RemembersGradientNorm:
    """Mixed into a Keras optimiser: keeps the norm of the last whole gradient."""

    _compiled = None

    def apply_compiled(self, compiled):
        """Compile :meth:`apply` on its own, once, by one such as ``tf.function``."""
        self._compiled = self._compiled or compiled(self._apply)

    def build(self, variables):
        """Create the optimiser's variables and one for the norm."""
        super().build(variables)
        if not hasattr(self, "gradient_norm"):
            self.gradient_norm = keras.Variable(
                0.0, trainable=False, name="gradient_norm"
            )

    def apply(self, grads, trainable_variables=None):
        """Take a step; the norm is that before clipping."""
        if trainable_variables is not None and not self.built:
            self.build(trainable_variables)
        take = self._compiled or self._apply
        # Reshaped to tensors: TensorFlow has rows and their numbers for the embedding.
        take([ops.reshape(g, g.shape) for g in grads])

    def _apply(self, grads):
        squares = [ops.sum(ops.square(ops.cast(g, "float32"))) for g in grads]
        self.gradient_norm.assign(ops.sqrt(sum(squares)))
        super().apply(grads)


class RMSprop(_RemembersGradientNorm, keras.optimizers.RMSprop):
    """RMSProp, Flickr8k in the paper."""


class Adam(_RemembersGradientNorm, keras.optimizers.Adam):
    """Adam, Flickr30k and COCO in the paper."""


class AdamW(_RemembersGradientNorm, keras.optimizers.AdamW):
    """Adam with decoupled weight decay."""


def learning_rate(settings: TrainingSettings, total_steps: int):
    """Return the rate: a number, or a schedule over `total_steps`."""
    rate, warmup = settings.learning_rate, settings.warmup_steps
    if settings.schedule == "constant" and not warmup:
        return rate
    if settings.schedule == "constant":
        return keras.optimizers.schedules.PolynomialDecay(0.0, warmup, rate)
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else rate,
        max(total_steps - warmup, 1),
        warmup_target=rate if warmup else None,
        warmup_steps=warmup,
    )


def make_optimizer(settings: TrainingSettings, total_steps: int):
    """Return the optimiser of an experiment.

    Args:
        settings: the experiment's.
        total_steps: updates of the whole training, for the schedule.
    """
    rate = learning_rate(settings, total_steps)
    clip = settings.clip_norm or None
    decay = settings.average_decay
    common = {
        "learning_rate": rate,
        "global_clipnorm": clip,
        "use_ema": bool(decay),
        "ema_momentum": decay or 0.99,
    }
    if settings.optimizer == "rmsprop":
        return RMSprop(rho=0.95, momentum=0.9, **common)  # the decay of the authors
    if settings.optimizer == "adam":
        return Adam(**common)
    return AdamW(weight_decay=settings.weight_decay, **common)
