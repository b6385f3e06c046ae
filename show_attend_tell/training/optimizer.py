"""Build the optimisers, with the gradient's norm and debiased averages (EMA)."""

import dataclasses
import logging
import math
from typing import Any

import keras
from keras import ops

from show_attend_tell.config.fields import OptimiserSettings
from show_attend_tell.runtime.errors import plural

# Warm-up, and the average at the end, have at most one of so many parts of all updates.
_PARTS = 5
logger = logging.getLogger(__name__)


class _NormAndAverage:
    """Mixed into a Keras optimiser: the gradient's norm and a debiased EMA of weights.

    With ``use_ema`` Keras starts its average at the weights w_1 after the first update
    and gives them the weight d^(t-1) after update t, d being the decay: 95 % after 26
    updates with d = 0.998. Here the average is that of Adam's moments (Kingma and Ba,
    ICLR 2015, Sec. 3), debiased::

        average_t = (1 - d) / (1 - d^t) sum_{k=1}^t d^(t-k) w_k

    which is the plain mean at first and the usual average once t >> 1 / (1 - d).

    :meth:`finalize_variable_values` sets the weights of the trained model. They can lie
    between w_0, the weights when :meth:`build` is called, and the average (or the last
    weights, without an average)::

        share w_0 + (1 - share) average_t

    This is WiSE-FT, Eq. (1) of Wortsman et al., CVPR 2022, arXiv:2109.01903, with its
    1 - alpha as the share.

    Attributes:
        average_from_start: whether the average starts at w_0; it is then
            d^t w_0 + (1 - d) sum_k d^(t-k) w_k. In a short training d^t stays large
            and depends on the number of updates, which the share does not.
        initial_share: the share of w_0.
    """

    average_from_start = False
    initial_share = 0.0
    _compiled_apply = None

    def compile_apply(self, compile_fn):
        """Compile :meth:`apply` once, with a function such as tf.function."""
        self._compiled_apply = self._compiled_apply or compile_fn(self._apply)

    def build(self, variables):
        """Create the optimiser's variables and one for the norm."""
        super().build(variables)
        if hasattr(self, "gradient_norm"):  # built already
            return
        # Keras tracks an attribute that is a variable as one of the optimiser's: it is
        # in checkpoints and in the state of the step on JAX.
        self.gradient_norm = keras.Variable(0.0, trainable=False, name="gradient_norm")
        if self.use_ema and self.average_from_start:
            averages = self._model_variables_moving_average
            for average, variable in zip(averages, variables, strict=True):
                average.assign(variable)
        if self.initial_share:  # variables, so that a checkpoint has them
            self.initial_weights = [
                self.add_variable_from_reference(variable, "initial")
                for variable in variables
            ]
            for initial, variable in zip(self.initial_weights, variables, strict=True):
                initial.assign(variable)

    def apply(self, grads, trainable_variables=None):
        """Apply an update and record the gradient's norm before clipping."""
        if trainable_variables is not None and not self.built:
            self.build(trainable_variables)
        apply = self._compiled_apply or self._apply
        # Reshaped to tensors: TensorFlow returns the embedding's gradient as slices.
        apply([ops.reshape(g, g.shape) for g in grads])

    def _apply(self, grads):
        squares = [ops.sum(ops.square(ops.cast(g, "float32"))) for g in grads]
        self.gradient_norm.assign(ops.sqrt(sum(squares)))
        # Keras clips the gradient in this call: the norm is that before clipping.
        super().apply(grads)

    def _update_model_variables_moving_average(self, trainable_variables):
        """Update the averages; overrides Keras' own, which is biased."""
        share = 1 - self.ema_momentum
        if not self.average_from_start:
            # The debiased average as a recursion: 1 - d^t by expm1, for d close to 1.
            # The share is (1 - d) / (1 - d^t), 1 at the first update. Keras counts an
            # update after this call, so that t is one more than `iterations`.
            t = ops.cast(self.iterations, "float32") + 1
            share = -share / ops.expm1(t * math.log(self.ema_momentum))
        averages = self._model_variables_moving_average
        for average, variable in zip(averages, trainable_variables, strict=True):
            average.assign(average + share * (variable - average))

    def finalize_variable_values(self, var_list):
        """Set variables, which have the last weights, to those of the trained model."""
        # The average first, where there is one; then the share of w_0 in it.
        super().finalize_variable_values(var_list)
        share = self.initial_share
        if share:
            for initial, variable in zip(self.initial_weights, var_list, strict=True):
                variable.assign(share * initial + (1 - share) * variable)


class RMSprop(_NormAndAverage, keras.optimizers.RMSprop):
    """RMSProp, Flickr8k in the paper."""


class Adam(_NormAndAverage, keras.optimizers.Adam):
    """Adam, Flickr30k and COCO in the paper."""


class AdamW(_NormAndAverage, keras.optimizers.AdamW):
    """Adam with decoupled weight decay."""


def bounded(settings: OptimiserSettings, total_steps: int) -> OptimiserSettings:
    """Return the settings with warm-up and average that fit a short training.

    Settings made for a whole data set leave a small part of it no update at the full
    rate, and an average of all weights from the first on. Warm-up has at most a fifth
    of the updates. The average has at most the last fifth, 1 / (1 - decay) updates,
    unless training starts from a model, whose weights are good.

    Args:
        settings: the table ``[training]``.
        total_steps: updates of the whole training.
    """
    changes: dict[str, Any] = {}
    warmup = total_steps // _PARTS
    if settings.warmup_steps > warmup:
        changes["warmup_steps"] = warmup
    # Not 0, which would be no average, and other variables in a checkpoint.
    decay = max(0.01, 1 - _PARTS / max(total_steps, 1))
    if settings.average_decay > decay and not getattr(settings, "init_from", ""):
        # Below 1, to which the decay of more than 100,000 updates would be rounded.
        changes["average_decay"] = min(round(decay, 4), 0.9999)
    if changes:
        shown = ", ".join(
            f"{name} {value} in place of {getattr(settings, name)}"
            for name, value in changes.items()
        )
        logger.info("a training of %s has %s", plural(total_steps, "update"), shown)
    return dataclasses.replace(settings, **changes)


def learning_rate(settings: OptimiserSettings, total_steps: int):
    """Return the learning rate: a number, or a schedule over `total_steps`."""
    rate = settings.learning_rate
    warmup = settings.warmup_steps
    if settings.schedule == "constant" and not warmup:
        return rate
    if settings.schedule == "constant":
        # A "decay" from 0 up to the rate, where it stays: a linear warm-up.
        return keras.optimizers.schedules.PolynomialDecay(0.0, warmup, rate)
    # Keras counts the updates of the decay from the end of the warm-up.
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else rate,
        max(total_steps - warmup, 1),
        warmup_target=rate if warmup else None,
        warmup_steps=warmup,
    )


def make_optimizer(settings: OptimiserSettings, total_steps: int):
    """Return the optimiser of an experiment.

    Args:
        settings: training settings; with ``init_from`` and no ``initial_share``, the
            average of weights starts at the weights when ``build`` is called. Not all
            tasks have both keys.
        total_steps: updates of the whole training, for the schedule.
    """
    decay = settings.average_decay
    common = {
        "learning_rate": learning_rate(settings, total_steps),
        "global_clipnorm": settings.clip_norm or None,
        "use_ema": bool(decay),
        # Without an average the value is not used; 0.99 is Keras' default.
        "ema_momentum": decay or 0.99,
    }
    if settings.optimizer == "rmsprop":
        optimizer = RMSprop(rho=0.95, momentum=0.9, **common)  # the authors' decay
    elif settings.optimizer == "adam":
        optimizer = Adam(**common)
    else:
        optimizer = AdamW(weight_decay=settings.weight_decay, **common)
    # Attributes, because Keras' constructors refuse unknown arguments.
    share = getattr(settings, "initial_share", 0.0)
    optimizer.initial_share = share
    starts_trained = bool(getattr(settings, "init_from", ""))
    optimizer.average_from_start = starts_trained and not share
    return optimizer
