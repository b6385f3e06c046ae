"""Apply the updates of an epoch on pictures of digits that are made anew."""

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from show_attend_tell.data.digits import Digits, make_pictures


class PictureUpdates:
    """Train on every training digit once an epoch, in pictures made anew.

    The digits after the last whole batch of an epoch, other ones in every epoch, are
    left out, as a smaller batch would need a graph of its own.

    Args:
        experiment: the settings.
        model: a built model, which is compiled before the first update.
        digits: the training digits.
        compile_step: called with the model and whether XLA compiles; returns a
            ``tf.function`` that applies an update and returns the values to log. Its
            arguments are the tensors of a batch.
    """

    def __init__(self, experiment, model, digits: Digits, compile_step: Callable):
        self.settings, self.data = experiment.training, experiment.data
        self.model, self.digits = model, digits
        self.compile_step = compile_step
        self.batch = min(self.settings.batch_size, len(digits.labels))
        self._step = None

    @property
    def steps(self) -> int:
        """Number of updates in an epoch."""
        return len(self.digits.labels) // self.batch

    @property
    def graphs(self) -> int:
        """Number of graphs compiled so far."""
        return int(self._step is not None)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        for batch in self._prefetched(epoch, start):
            yield self.apply(*batch)

    def apply(self, *batch: tf.Tensor) -> dict:
        """Apply one update; the first one compiles the step."""
        if self._step is None:
            step = self.compile_step(self.model, self.settings.jit_compile)
            self._step = step.get_concrete_function(*batch)
        return self._step(*batch)

    def _prefetched(self, epoch: int, start: int) -> tf.data.Dataset:
        """Return the batches as tensors; a thread makes the next ones."""
        shape = (self.batch, self.data.canvas, self.data.canvas)
        signature = Digits(
            tf.TensorSpec(shape, tf.uint8), tf.TensorSpec(shape[:1], tf.uint8)
        )
        dataset = tf.data.Dataset.from_generator(
            lambda: self.batches(epoch, start), output_signature=signature
        )
        options = tf.data.Options()
        options.autotune.enabled = False  # it would delay the start of an epoch
        return dataset.prefetch(4).with_options(options)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Digits]:
        """Yield batches; each depends on the seed, the epoch and its number alone."""
        seed, (images, labels) = self.settings.seed, self.digits
        order = np.random.default_rng([seed, epoch]).permutation(len(labels))
        for number in range(start, self.steps):
            chosen = order[number * self.batch : (number + 1) * self.batch]
            rng = np.random.default_rng([seed, epoch, number])
            pictures = make_pictures(images[chosen], images, self.data, rng)
            yield Digits(pictures, labels[chosen])
