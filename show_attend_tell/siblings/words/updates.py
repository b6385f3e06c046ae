"""Apply the updates of an epoch on crops of words."""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from show_attend_tell.config.words import ReadExperiment
from show_attend_tell.data.characters import PAD, STEPS, encode_words
from show_attend_tell.data.words import WordData
from show_attend_tell.runtime.backend import UNROLLED
from show_attend_tell.siblings.training import Updates, prefetch
from show_attend_tell.siblings.words.augmentation import (
    Changes,
    change_crops,
    draw_changes,
    normalised,
)
from show_attend_tell.siblings.words.model import (
    Reader,
    mask_of,
    shifted,
    word_losses,
)

# A batch is read in two parts: this share of its words, the shortest, and the others.
# Each part has the smallest of these numbers of characters, <end> included, that its
# words need. Each number has its own graph.
_SHORT, LENGTHS = 0.75, (8, UNROLLED, STEPS)
_ESTIMATING = 40  # batches that measure the statistics of the averaged weights


class Batch(NamedTuple):
    """The crops of an update."""

    crops: np.ndarray  # (B, 32, 100) uint8, those of shorter words first
    targets: np.ndarray  # (B, 24) int32
    changes: Changes | tuple  # empty without augmentation


class WordUpdates(Updates):
    """Train on every crop once an epoch.

    Args:
        experiment: the settings.
        model: a built model, which is compiled before the first update.
        data: the training words.
    """

    def __init__(self, experiment: ReadExperiment, model: Reader, data: WordData):
        super().__init__(experiment.training, len(data))
        self.model, self.data = model, data
        self.targets = encode_words(data.words)  # (N, 24)
        self._step, self._lengths = None, set()

    @property
    def graphs(self) -> int:
        """Number of graphs compiled so far."""
        return len(self._lengths)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        self._step = self._step or compiled_step(self.model, self.settings)
        signature = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype), next(self.batches(0))
        )
        for batch in prefetch(lambda: self.batches(epoch, start), signature):
            parts = parts_of(batch.targets.numpy())
            self._lengths.add(parts)
            yield self._step(batch, parts)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield batches; each depends only on the seed, the epoch and its number."""
        for number, chosen in self.rows_of(epoch, start):
            lengths = np.sum(self.targets[chosen] != PAD, axis=1)
            chosen = chosen[np.argsort(lengths, kind="stable")]
            changes = ()
            if self.settings.augment:
                rng = np.random.default_rng([self.settings.seed, epoch, number])
                changes = draw_changes(rng, self.batch)
            yield Batch(self.data.images[chosen], self.targets[chosen], changes)

    def estimate_statistics(self, model: Reader) -> None:
        """Measure the statistics of batch normalisation for a model's own weights.

        A training step stores the statistics of the last weights; the averaged weights,
        which are validated and saved, have different sums. The crops of some batches,
        unchanged, measure them, so the result depends only on the weights.

        Args:
            model: the model; its stored means and variances are changed.
        """
        if not model.settings.batch_norm:
            return
        encoder = model.encoder

        @tf.function(autograph=False)
        def statistics_of(crops):
            encoder(normalised(crops)[..., None], training=True, momentum=0.0)
            return [tuple(map(tf.identity, pair)) for pair in encoder.statistics]

        epochs = (self.batches(epoch) for epoch in itertools.count())
        batches = itertools.chain.from_iterable(epochs)
        seen = [
            statistics_of(tf.constant(batch.crops))
            for batch in itertools.islice(batches, _ESTIMATING)
        ]
        for (mean, variance), *pairs in zip(encoder.statistics, *seen, strict=True):
            means, variances = (np.array(values) for values in zip(*pairs, strict=True))
            mean.assign(means.mean(axis=0))
            # Within the batches, and between them.
            variance.assign(variances.mean(axis=0) + means.var(axis=0))


def parts_of(targets: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Return the rows and the characters of each part of a batch, see :data:`LENGTHS`.

    Args:
        targets: (B, 24), those of shorter words first.
    """
    lengths = np.sum(targets != PAD, axis=1)
    rows = int(_SHORT * len(lengths))
    edges = sorted({0, rows, len(lengths)})
    return tuple(
        (last - first, next(T for T in LENGTHS if lengths[last - 1] <= T))
        for first, last in itertools.pairwise(edges)
    )


def compiled_gradients(model: Reader, settings) -> Callable:
    """Return a function of targets, annotations and parts of a batch.

    It returns the mean loss, the mean entropy, the loss's gradient in the annotations,
    and those in the weights of the decoder. XLA compiles it together with its gradient:
    a loop of many steps saves lists for it, which cannot leave a compiled function.
    """
    decoder = [weight.value for weight in model.decoder.trainable_weights]

    def read_part(targets, annotations):
        """Return sums of losses and of entropies, and the gradients of the former."""
        with tf.GradientTape() as tape:
            tape.watch(annotations)
            logits = model.teacher_force(shifted(targets), annotations)["logits"]
            losses = word_losses(logits, targets, settings.label_smoothing)
            total = tf.reduce_sum(losses)
        entropy = tf.reduce_sum(word_losses(logits, targets))
        return total, entropy, tape.gradient(total, [annotations, *decoder])

    read_part = tf.function(
        read_part, autograph=False, jit_compile=settings.jit_compile
    )

    def read_parts(targets, annotations, parts):
        """Return mean loss, mean entropy and gradients of a batch."""
        found, first = [], 0
        for rows, T in parts:
            last = first + rows
            found.append(read_part(targets[first:last, :T], annotations[first:last]))
            first = last
        losses, entropies, gradients = zip(*found, strict=True)
        of_annotations, *of_weights = zip(*gradients, strict=True)
        return (
            tf.add_n(losses) / first,
            tf.add_n(entropies) / first,
            tf.concat(of_annotations, axis=0) / first,
            [tf.add_n(each) / first for each in of_weights],
        )

    return read_parts


def compiled_step(model: Reader, settings):
    """Return the training step, a function of a :class:`Batch` of tensors and parts.

    It returns the loss, and the cross entropy per word and per character, in nats.
    XLA compiles the decoder alone: its convolutions are slower on a processor.
    """
    encoder = [weight.value for weight in model.encoder.trainable_weights]
    weights = model.encoder.trainable_weights + model.decoder.trainable_weights
    place = {weight.path: k for k, weight in enumerate(weights)}
    order = [place[weight.path] for weight in model.trainable_weights]
    read_parts = compiled_gradients(model, settings)

    def step(batch: Batch, parts):
        crops = batch.crops
        if batch.changes:
            crops = change_crops(crops, batch.changes)
        images = normalised(crops)[..., None]
        with tf.GradientTape() as tape:
            annotations = model.encoder(
                images, training=True, precision=settings.precision
            )
        read = read_parts(batch.targets, annotations, parts)
        loss, entropy, of_annotations, of_decoder = read
        gradients = tape.gradient(annotations, encoder, of_annotations) + of_decoder
        model.optimizer.apply([gradients[k] for k in order])
        characters = tf.reduce_mean(tf.reduce_sum(mask_of(batch.targets), axis=1))
        entropies = {"word_loss": entropy, "character_loss": entropy / characters}
        return {"loss": loss, **entropies}

    graphs = {}

    def apply(batch: Batch, parts) -> dict:
        if parts not in graphs:
            traced = tf.function(lambda one: step(one, parts), autograph=False)
            graphs[parts] = traced.get_concrete_function(batch)
        return graphs[parts](batch)

    return apply
