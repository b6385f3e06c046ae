"""Training hard attention by the lower bound L_s, Sec. 4.1 of arXiv:1502.03044v3.

At every step one location is drawn, s_t ~ Multinoulli(alpha_t), Eq. (8), and the
context is its annotation, Eq. (9). The objective, Eq. (10), and its gradient estimated
by a sequence s~ of drawn locations, Eq. (11) and (12), both to be raised::

    L_s = sum_s p(s|a) log p(y|s,a) <= log p(y|a)

    dL_s/dW ~  d log p(y|s~,a)/dW                               back-propagation
             + lambda_r r (log p(y|s~,a) - b) d log p(s~|a)/dW  REINFORCE
             + lambda_e dH[s~]/dW                               entropy

with log p(s~|a) = sum_t log alpha_t[s~_t], H[s~] = sum_t H(alpha_t) along the path
drawn, r the scale of the reward, and the baseline
b_k = 0.9 b_{k-1} + 0.1 log p(y|s~_k).

With ``reward_per = "word"`` a location is rewarded by the words that it can have
changed, and b is the moving average of one word's log p, so that long captions are not
punished for their length. The second term then is::

    lambda_r r sum_t [sum_{k >= t} (log p(y_k|s~,a) - b)] d log alpha_t[s~_t]/dW

Neither makes the estimator biased: no word depends on a location drawn after it, and b
on no draw of the batch. The variance is far lower where lengths differ, about a tenth
on captions of one and of three words (experiments/README.md); for one caption alone it
may be higher.

With ``baseline = "samples"`` b is, word by word, the mean of log p(y_k|s~,a) in the
other samples of the same caption, drawn or expected. They share how likely its words
are anyway, so that this adds no variance, but none of its draws: no bias either.

What each term touches:

* Back-propagation holds s~ fixed. It reaches the deep output (L_o, L_h, L_z), the LSTM,
  E, f_init and f_beta, and **nothing of f_att** (W_a, W_h, w_att, b): f_att acts on the
  words through the draws alone, and no gradient passes through a draw. With
  ``label_smoothing`` it is the smoothed likelihood's; rewards are log p itself.
* REINFORCE is the draws' gradient, the reward being a constant. It reaches f_att, and
  through h_{t-1}, from which alpha_t is computed, the LSTM, E, f_init and f_beta; not
  the deep output, which has no part in p(s|a).
* Entropy reaches what REINFORCE reaches. It is the gradient of H along the path drawn;
  that H also changes with the paths that are likely, the paper leaves out.

Where s~ is replaced by its expected value alpha, the context is soft attention's and
back-propagation reaches f_att too; REINFORCE is then zero, for the expected value of
d log p(s|a)/dW is.

The names of notation are those of :mod:`models.attention`; R = B samples rows
stand for the samples of each caption, side by side.
"""

from typing import NamedTuple

import keras
from keras import ops

from show_attend_tell.config.settings import HardAttentionSettings
from show_attend_tell.models.attention import drawn_location
from show_attend_tell.models.losses import (
    location_entropies,
    location_log_probs,
    token_losses,
)


class Draws(NamedTuple):
    """The chances of a batch."""

    u: object  # (R, T), uniform in [0, 1): which location
    sampled: object  # (R,), 1 where s~ is drawn, 0 where it is its expected value


class HardAttention(keras.layers.Layer):
    """The chances, the baseline and the terms that training hard attention adds.

    Args:
        settings: a :class:`config.hard_attention.HardAttentionSettings`.
        seed: of the chances.
    """

    def __init__(self, settings: HardAttentionSettings, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.settings = settings
        self.generator = keras.random.SeedGenerator(seed)
        # Replicas that train together keep one baseline, the mean of theirs.
        self.baseline = self.add_weight(
            shape=(),
            initializer="zeros",
            trainable=False,
            aggregation="mean",
            name="baseline",
        )
        names = ("baseline", "reward", "reward_variance", "entropy", "sampled")
        self.means = {name: keras.metrics.Mean(name=name) for name in names}
        self.built = True

    def draw(self, rows, steps) -> Draws:
        """Draw the chances of a batch of R rows and T steps."""
        probability = self.settings.sampling_probability
        coins = 1 if self.settings.drawn_per == "minibatch" else rows
        coin = keras.random.uniform((coins,), seed=self.generator) < probability
        sampled = ops.broadcast_to(ops.cast(coin, "float32"), (rows,))
        return Draws(keras.random.uniform((rows, steps), seed=self.generator), sampled)

    @staticmethod
    def look(draws: Draws, t, alpha):
        """Return the weights of phi at step t: one-hot s~_t, or alpha; (R, L).

        And which share of their gradient goes on to alpha: none where s~_t was drawn;
        (R, 1).
        """
        u = ops.expand_dims(ops.take(draws.u, t, axis=1), 1)
        s = drawn_location(alpha, u)
        sampled = ops.cast(ops.expand_dims(draws.sampled, 1), alpha.dtype)
        return ops.where(sampled > 0, s, alpha), 1 - sampled

    def surrogate(self, outputs, targets, mask):
        """Return what each row's loss lacks of -L_s; keep the baseline and the log.

        Its gradient is minus that of the REINFORCE and the entropy term.

        Args:
            outputs: float32: ``logits`` (R, T, K), ``alpha`` (R, T, L) and, where
                locations were drawn, ``looked`` (R, T, L) and ``sampled`` (R,).
            targets: word ids, (R, T).
            mask: 1 for a word of the caption, 0 for padding, (R, T).

        Returns:
            (R,); 0 where nothing was drawn, outside training.
        """
        words = ops.stop_gradient(-token_losses(outputs["logits"], targets) * mask)
        alpha = outputs["alpha"]
        drawn = "sampled" in outputs
        sampled = outputs["sampled"] if drawn else ops.zeros_like(words[:, 0])
        self._observe(ops.sum(words, axis=-1), alpha, sampled, mask)
        if not drawn:
            return ops.zeros_like(sampled)
        reinforce, entropy = self.terms(words, outputs, mask)
        self._update_baseline(words, sampled, mask)
        return -(reinforce + entropy)

    def terms(self, words, outputs, mask):
        """Return the REINFORCE and the entropy term of each row, to be raised.

        Args:
            words: log p(y_t|s~,a), (R, T), 0 for padding, no gradient in it.
            outputs: ``alpha``, ``looked`` and ``sampled`` of :meth:`surrogate`.
            mask: (R, T).

        Returns:
            Two tensors (R,).
        """
        s, alpha = self.settings, outputs["alpha"]
        reward = s.reinforce_weight * s.reward_scale * self._rewards(words, mask)
        reward = reward * ops.expand_dims(outputs["sampled"], 1)
        log_probs = location_log_probs(alpha, outputs["looked"], mask)
        reinforce = ops.sum(ops.stop_gradient(reward) * log_probs, axis=-1)
        return reinforce, s.entropy_weight * location_entropies(alpha, mask)

    def _rewards(self, words, mask):
        """Return what each location is rewarded with, less b; (R, T) or (R, 1)."""
        s, b = self.settings, self.baseline
        if s.baseline == "samples":
            b = mean_of_others(words, s.samples)
        elif s.reward_per == "caption":
            return ops.sum(words, axis=-1, keepdims=True) - b
        gains = (words - b) * mask
        if s.reward_per == "caption":
            return ops.sum(gains, axis=-1, keepdims=True)
        return ops.flip(ops.cumsum(ops.flip(gains, axis=1), axis=1), axis=1)

    def _observe(self, log_likelihood, alpha, sampled, mask):
        """Keep what a batch says of rewards and attention; padding does not count."""
        length = ops.sum(mask, axis=-1)
        present = ops.cast(length > 0, "float32")
        rows = ops.maximum(ops.sum(present), 1)
        reward = ops.sum(log_likelihood * present) / rows
        deviation = ops.square(log_likelihood - reward) * present
        entropy = location_entropies(alpha, mask) / ops.maximum(length, 1)
        self.means["baseline"].update_state(ops.convert_to_tensor(self.baseline))
        self.means["reward"].update_state(reward)
        self.means["reward_variance"].update_state(ops.sum(deviation) / rows)
        self.means["entropy"].update_state(entropy, sample_weight=length)
        self.means["sampled"].update_state(sampled, sample_weight=length)

    def _update_baseline(self, words, sampled, mask):
        """Move b towards the mean of what was drawn, if anything was.

        The mean over captions or over words, see ``reward_per``. Only after the terms
        were computed: b must not know the draws it is subtracted from, or the estimator
        would be biased.
        """
        drawn = mask * ops.expand_dims(sampled, 1)
        if self.settings.reward_per == "caption":
            total = ops.sum(ops.max(drawn, axis=-1))
        else:
            total = ops.sum(drawn)
        mean = ops.sum(words * drawn) / ops.maximum(total, 1)
        decay, old = self.settings.baseline_decay, ops.convert_to_tensor(self.baseline)
        moved = decay * old + (1 - decay) * mean
        self.baseline.assign(ops.where(total > 0, moved, old))


def mean_of_others(words, samples):
    """Return the mean over the other samples of each row's caption.

    Args:
        words: (R, T), R = B samples rows, those of a caption side by side.
        samples: two or more.

    Returns:
        (R, T).
    """
    steps = words.shape[1]
    samples_of = ops.reshape(words, (-1, samples, steps))
    total = ops.sum(samples_of, axis=1, keepdims=True)
    return ops.reshape((total - samples_of) / (samples - 1), (-1, steps))
