"""How much each of the three terms of hard attention's gradient weighs.

Three gradients instead of one would make a training step three times as long, so they
are taken every :data:`EVERY` updates only, of one batch that stays the same: an epoch's
padded lengths would each need a graph of their own, and a curve of one batch shows the
model's change alone. Dropout is off, every location is drawn, and nothing of the
training's state is touched.
"""

import numpy as np
import tensorflow as tf

from show_attend_tell.data.vocabulary import PAD
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.hard_attention import LocationNoise
from show_attend_tell.models.losses import token_losses

EVERY = 100  # updates between two measurements


class TermNorms:
    """Measures the norms of the gradients of back-propagation, REINFORCE and entropy.

    Args:
        model: a Captioner with hard attention.
        batch: annotations (B, L, D), inputs and targets (B, T).
        seed: of the locations drawn.
    """

    def __init__(self, model: Captioner, batch: tuple, seed: int):
        self.model, self.seed = model, seed
        self.annotations, self.inputs, self.targets = map(tf.constant, batch)
        self._measure = tf.function(self._norms, autograph=False)

    def __call__(self, step: int) -> dict[str, float]:
        """Return the norms after update `step`, which also seeds the draws.

        Returns:
            ``gradient_norm_words``, ``_reinforce`` and ``_entropy`` of the mean over
            captions.
        """
        rng = np.random.default_rng([self.seed, step])
        captions, steps = self.targets.shape
        rows = captions * self.model.hard.samples
        u = tf.constant(rng.random((rows, steps), np.float32))
        names = ("words", "reinforce", "entropy")
        return {
            f"gradient_norm_{name}": float(norm)
            for name, norm in zip(names, self._measure(u), strict=True)
        }

    def _norms(self, u):
        hard = self.model.hard_attention
        weights = [w.value for w in self.model.trainable_weights]
        norms = []
        for number in range(3):
            # A tape each: one that persists would look into the recurrence, whose
            # loop has no gradient but the one written by hand.
            with tf.GradientTape() as tape:
                term = self._terms(hard, LocationNoise(u, tf.ones(u.shape[0])))[number]
            found = [g for g in tape.gradient(term, weights) if g is not None]
            # As tensors: the embedding's gradient names a word once for each use.
            norms.append(tf.linalg.global_norm(list(map(tf.convert_to_tensor, found))))
        return norms

    def _terms(self, hard, noise: LocationNoise):
        """Return the mean over samples of each of the three terms."""
        samples = self.model.hard.samples
        targets = tf.repeat(self.targets, samples, axis=0)
        mask = tf.cast(targets != PAD, "float32")
        outputs = self.model.teacher_force(
            {"annotations": self.annotations, "tokens": self.inputs},
            select_weights=noise.select_weights,
            samples=samples,
        )
        outputs = {**outputs, "sampled": noise.sampled}
        words = -token_losses(outputs["logits"], targets) * mask
        rest = hard.terms(tf.stop_gradient(words), outputs, mask)
        present = tf.reduce_sum(tf.reduce_max(mask, axis=-1))
        return [tf.reduce_sum(term) / present for term in (words, *rest)]
