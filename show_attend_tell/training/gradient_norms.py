"""Measure the gradient norm of each of the three terms of hard attention's loss.

Three gradients in place of one would make a training step three times as long.
Therefore they are computed every :data:`EVERY` updates only, always on the same batch:
each padded length would need a graph of its own, and the curve of one batch shows the
model's change alone. Dropout is off, every location is sampled, and no state of the
training changes.
"""

import numpy as np
import tensorflow as tf

from show_attend_tell.data.dataset import part_of
from show_attend_tell.data.vocabulary import PAD
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.losses import token_losses
from show_attend_tell.models.lstm.hard_attention import LocationNoise
from show_attend_tell.training.workers import ALONE, Workers

EVERY = 100  # updates between two measurements


class TermNorms:
    """Compute the gradient norms of back-propagation, REINFORCE and entropy.

    Args:
        model: a Captioner with hard attention.
        batch: annotations (B, L, D), inputs and targets (B, T).
        seed: seed of the sampled locations.
        workers: the workers, whose batches are parts of one; all call it together.
    """

    def __init__(
        self, model: Captioner, batch: tuple, seed: int, workers: Workers = ALONE
    ):
        self.model, self.seed, self.workers = model, seed, workers
        self.annotations, self.inputs, self.targets = map(tf.constant, batch)
        self._compute = tf.function(self._norms, autograph=False)

    def __call__(self, step: int) -> dict[str, float]:
        """Return the norms after update `step`, which also seeds the noise.

        Returns:
            ``gradient_norm_words``, ``_reinforce`` and ``_entropy`` of the mean over
            captions.
        """
        rng = np.random.default_rng([self.seed, step])
        captions, steps = self.targets.shape
        rows = captions * self.model.hard.samples
        whole = rows * self.workers.count
        own = part_of(whole, *self.workers.part)
        u = tf.constant(rng.random((whole, steps), np.float32)[own])  # (B S, T)
        names = ("words", "reinforce", "entropy")
        return {
            f"gradient_norm_{name}": float(norm)
            for name, norm in zip(names, self._compute(u), strict=True)
        }

    def _norms(self, u):
        hard = self.model.hard_attention
        weights = [w.value for w in self.model.trainable_weights]
        norms = []
        for number in range(3):
            # A forward pass and a tape for each: a persistent or a second tape would
            # record inside the recurrence, whose loop has only a hand-written gradient.
            with tf.GradientTape() as tape:
                *terms, captions = self._terms(
                    hard, LocationNoise(u, tf.ones(u.shape[0]))
                )
                term = terms[number]
            found = [g for g in tape.gradient(term, weights) if g is not None]
            # Converted to tensors: the embedding's slices repeat a word's row.
            found = list(map(tf.convert_to_tensor, found))
            *found, captions = self.workers.sum([*found, captions])
            norms.append(tf.linalg.global_norm(found) / captions)
        return norms

    def _terms(self, hard, noise: LocationNoise):
        """Return the sum over samples of each of the three terms, and their number."""
        samples = self.model.hard.samples
        targets = tf.repeat(self.targets, samples, axis=0)  # (B, T) -> (B S, T)
        mask = tf.cast(targets != PAD, "float32")
        outputs = self.model.teacher_force(
            {"annotations": self.annotations, "tokens": self.inputs},
            selection=noise.selection(),
            samples=samples,
        )
        outputs = {**outputs, "sampled": noise.sampled}
        words = -token_losses(outputs["logits"], targets) * mask
        rest = hard.terms(tf.stop_gradient(words), outputs, mask)
        present = tf.reduce_sum(tf.reduce_max(mask, axis=-1))  # captions with words
        return *(tf.reduce_sum(term) for term in (words, *rest)), present
