"""Train hard attention by the lower bound L_s, Sec. 4.1 of arXiv:1502.03044v3.

This file holds sampling, rewards, baselines and surrogate loss.
REINFORCE (Williams, 1992) with CIDEr as the reward is in :mod:`training.self_critical`.

At every step one location is sampled, s_t ~ Multinoulli(alpha_t), Eq. (8), and the
context is its annotation, Eq. (9). The objective, Eq. (10), and its gradient estimated
by a sequence s~ of sampled locations, Eq. (11) and (12), both to be maximised::

    L_s = sum_s p(s|a) log p(y|s,a) <= log p(y|a)

    dL_s/dW ~  d log p(y|s~,a)/dW                               back-propagation
             + lambda_r r (log p(y|s~,a) - b) d log p(s~|a)/dW  REINFORCE
             + lambda_e dH[s~]/dW                               entropy

with log p(s~|a) = sum_t log alpha_t[s~_t], H[s~] = sum_t H(alpha_t) along the sampled
path, r the scale of the reward, and the baseline
b_k = 0.9 b_{k-1} + 0.1 log p(y|s~_k). That is the default, ``reward_per = "caption"``
and ``baseline = "moving"``.

With ``reward_per = "word"`` the reward of a location counts the words that it can have
changed, and b is the moving average of one word's log p, so that long captions are not
punished for their length. The second term then is::

    lambda_r r sum_t [sum_{k >= t} (log p(y_k|s~,a) - b)] d log alpha_t[s~_t]/dW

No word depends on a location sampled after it, and b depends on no sample of the batch,
so the estimator stays unbiased. On captions of one and of three words its variance is
about a tenth (0.09 to 0.12 for the weights of f_att, on the problem that
``tests/models/lstm/test_estimator.py`` enumerates); for one caption alone it may be
higher.

``reward_per = "caption_mean"`` takes the mean over the caption's T words, as the
authors' code does for minibatches of one length::

    lambda_r r [1/T sum_t (log p(y_t|s~,a) - b)] d log p(s~|a)/dW

Their code averages the likelihood over the B captions of a minibatch and sums the other
two terms, with the factors 1/10 and 0.002. The loss of this program is a mean over
captions, so these terms are multiplied by B: at B = 64 the weight of the entropy is
64 x 0.002 = 0.128, and the weight of the reward 64 / 10 = 6.4. The defaults,
``reward_scale = 0.1`` and ``entropy_weight = 0.002``, are B times smaller. In their
code the gradients passed to alpha replace the gradient of the doubly stochastic term of
Eq. (14). Here that term is a part of the loss, with its gradient, unless lambda is 0:
``training.doubly_stochastic`` is 1 by default, and 0 in the experiments with hard
attention. Captions are generated from the expected context.

With ``baseline = "samples"`` b is, word by word, the mean of log p(y_k|s~,a) in the
other samples of the same caption, sampled or expected. The likelihood of its words
cancels, which lowers the variance; b depends on no sample that it is subtracted from,
so there is no bias.

Weights that each term reaches:

* Back-propagation holds s~ fixed. It reaches the deep output (L_o, L_h, L_z), the LSTM,
  E, f_init and f_beta, and **nothing of f_att** (W_a, W_h, w_att, b_a). With
  ``label_smoothing`` its likelihood is smoothed; rewards are log p itself.
* REINFORCE is the gradient of the samples, the reward being a constant. It reaches
  f_att, and through h_{t-1}, from which alpha_t is computed, the LSTM, E, f_init and
  f_beta; not the deep output, which has no part in p(s|a).
* Entropy reaches the weights that REINFORCE reaches. It is the gradient of H along the
  sampled path; the paper leaves out that H also changes with the likely paths.

Where s~ is replaced by its expected value alpha, the context is soft attention's and
back-propagation reaches f_att too; REINFORCE is then zero, for the expected value of
d log p(s|a)/dW is.

Notation as in :mod:`models.lstm.attention`; R = B samples rows hold the samples of each
caption, side by side. A mask (R, T) is 1 for a word of the caption and 0 for padding.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from show_attend_tell.config.captioner import HardAttentionSettings
from show_attend_tell.models.decoder_interface import Selection
from show_attend_tell.models.losses import token_losses
from show_attend_tell.models.lstm.attention import sampled_location


class LocationNoise(NamedTuple):
    """The random numbers of a batch, which decide its locations."""

    u: Any  # (R, T), uniform in [0, 1): which location
    sampled: Any  # (R,), 1 where s~ is sampled, 0 where it is its expected value

    def selection(self) -> Selection:
        """Return the choice of the context weights of all steps."""
        # (R,) -> (R, T)
        sampled = ops.repeat(ops.expand_dims(self.sampled, 1), self.u.shape[1], axis=1)
        return Selection(_sampled_or_expected, (self.u, sampled))


def _sampled_or_expected(alpha, u, sampled):
    """Return one-hot s~_t, or alpha, and q: 0 where s~_t was sampled, 1 elsewhere.

    See :class:`Selection`. Shapes: alpha (R, L), u and sampled (R,).
    """
    s = sampled_location(alpha, ops.expand_dims(u, 1))  # (R, L)
    sampled = ops.cast(ops.expand_dims(sampled, 1), alpha.dtype)  # (R,) -> (R, 1)
    return ops.where(sampled > 0, s, alpha), 1 - sampled


class HardAttention(keras.layers.Layer):
    """The noise, the baseline and the loss terms of hard attention in training.

    Args:
        settings: a :class:`config.settings.HardAttentionSettings`.
        seed: seed of the noise.
    """

    def __init__(self, settings: HardAttentionSettings, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.settings = settings
        self.generator = keras.random.SeedGenerator(seed)
        # Replicas that train together keep the mean of their baselines.
        self.baseline = self.add_weight(
            shape=(),
            initializer="zeros",
            trainable=False,
            aggregation="mean",
            name="baseline",
        )
        names = ("baseline", "reward", "entropy", "sampled", "sampled_reward")
        self.means = {name: keras.metrics.Mean(name=name) for name in names}
        self.variance = Variance(name="reward_variance")
        self.built = True

    def sample_noise(self, rows, steps) -> LocationNoise:
        """Return the random numbers of a batch of R rows and T steps."""
        probability = self.settings.sampling_probability
        count = 1 if self.settings.drawn_per == "minibatch" else rows
        sampled = keras.random.uniform((count,), seed=self.generator) < probability
        sampled = ops.broadcast_to(ops.cast(sampled, "float32"), (rows,))
        u = keras.random.uniform((rows, steps), seed=self.generator)
        return LocationNoise(u, sampled)

    def surrogate(self, outputs, targets, mask):
        """Return the REINFORCE and entropy part of each row's loss; update b and logs.

        Its gradient is minus the gradient of the two terms.

        Args:
            outputs: float32: ``logits`` (R, T, K), ``alpha`` (R, T, L) and, where
                locations were sampled, ``context_weights`` (R, T, L) and ``sampled``
                (R,).
            targets: word ids, (R, T).
            mask: (R, T).

        Returns:
            (R,); 0 without samples, outside training.
        """
        log_p = -token_losses(outputs["logits"], targets) * mask  # (R, T)
        # A constant: the reward weighs a gradient and has none of its own.
        log_p = ops.stop_gradient(log_p)
        alpha = outputs["alpha"]
        is_sampled = "sampled" in outputs
        sampled = outputs["sampled"] if is_sampled else ops.zeros_like(log_p[:, 0])
        self._update_metrics(ops.sum(log_p, axis=-1), alpha, sampled, mask)
        if not is_sampled:
            return ops.zeros_like(sampled)
        reinforce, entropy = self.terms(log_p, outputs, mask)
        # After the terms, which subtract b: it must not depend on the samples of the
        # batch.
        self._update_baseline(log_p, sampled, mask)
        return -(reinforce + entropy)

    def terms(self, log_p, outputs, mask):
        """Return the REINFORCE and the entropy term of each row, to be maximised, (R,).

        ``log_p`` is log p(y_t|s~,a), (R, T), 0 for padding, without a gradient; see
        :meth:`surrogate` for the outputs.
        """
        settings = self.settings
        alpha = outputs["alpha"]
        scale = settings.reinforce_weight * settings.reward_scale
        reward = scale * self._advantages(log_p, mask)
        # Rows with the expected value have no sampled location to reinforce.
        reward = reward * ops.expand_dims(outputs["sampled"], 1)  # (R, T) or (R, 1)
        log_probs = location_log_probs(alpha, outputs["context_weights"], mask)
        # (R, T) -> (R,)
        reinforce = ops.sum(ops.stop_gradient(reward) * log_probs, axis=-1)
        return reinforce, settings.entropy_weight * location_entropies(alpha, mask)

    def _advantages(self, log_p, mask):
        """Return the reward of each location minus the baseline b; (R, T) or (R, 1)."""
        settings = self.settings
        b = self.baseline
        if settings.baseline == "samples":
            b = mean_of_others(log_p, settings.samples)  # (R, T)
        elif settings.reward_per == "caption":
            return ops.sum(log_p, axis=-1, keepdims=True) - b  # (R, T) -> (R, 1)
        gains = (log_p - b) * mask
        if settings.reward_per == "caption":
            return ops.sum(gains, axis=-1, keepdims=True)  # (R, T) -> (R, 1)
        if settings.reward_per == "caption_mean":
            length = ops.maximum(ops.sum(mask, axis=-1, keepdims=True), 1)  # (R, 1)
            return ops.sum(gains, axis=-1, keepdims=True) / length
        # Of each t, the sum over k >= t, (R, T) -> (R, T)
        return ops.flip(ops.cumsum(ops.flip(gains, axis=1), axis=1), axis=1)

    def _update_metrics(self, log_likelihood, alpha, sampled, mask):
        """Update the means of rewards, log p(y|s~,a) (R,), and of attention."""
        length = ops.sum(mask, axis=-1)  # (R, T) -> (R,)
        present = ops.cast(length > 0, "float32")
        entropy = location_entropies(alpha, mask) / ops.maximum(length, 1)  # (R,)
        self.means["baseline"].update_state(ops.convert_to_tensor(self.baseline))
        self.means["reward"].update_state(log_likelihood, sample_weight=present)
        self.variance.update_state(log_likelihood, sample_weight=present)
        self.means["entropy"].update_state(entropy, sample_weight=length)
        self.means["sampled"].update_state(sampled, sample_weight=length)

    def _update_baseline(self, log_p, sampled, mask):
        """Move b towards the mean log p of sampled rows, if there are any.

        The mean is over captions or over words, see ``reward_per``.
        """
        counted = mask * ops.expand_dims(sampled, 1)  # (R, T), words of sampled rows
        if self.settings.reward_per == "caption":
            log_p = ops.sum(log_p * counted, axis=-1)  # (R, T) -> (R,)
            # 1 for a sampled row with at least one word.
            counted = ops.max(counted, axis=-1)  # (R, T) -> (R,)
        # Flat, as the metric would take the mean over the words of a row first.
        log_p = ops.reshape(log_p, (-1,))
        counted = ops.reshape(counted, (-1,))
        self.means["sampled_reward"].update_state(log_p, sample_weight=counted)
        count = ops.sum(counted)
        mean = ops.sum(log_p * counted) / ops.maximum(count, 1)
        decay = self.settings.baseline_decay
        old = ops.convert_to_tensor(self.baseline)
        # `where` in `moved_average`, not `if`: whether rows were sampled is known only
        # when the graph runs.
        self.baseline.assign(moved_average(old, mean, decay, count > 0))


class Variance(keras.metrics.Metric):
    """The variance of weighted values: mean of squares minus square of the mean."""

    def __init__(self, name):
        super().__init__(name=name)
        self.count = self.add_variable((), "zeros", name="count")
        self.total = self.add_variable((), "zeros", name="total")
        self.squares = self.add_variable((), "zeros", name="squares")

    def update_state(self, values, sample_weight):
        """Add values (R,) with weights (R,)."""
        self.count.assign_add(ops.sum(sample_weight))
        self.total.assign_add(ops.sum(sample_weight * values))
        self.squares.assign_add(ops.sum(sample_weight * ops.square(values)))

    def result(self):
        """Return the variance; 0 without values."""
        count = ops.maximum(self.count, 1)
        mean = self.total / count
        # Rounding may make the difference of two near numbers negative.
        return ops.maximum(self.squares / count - ops.square(mean), 0)


def mean_of_others(values, samples):
    """Return the mean over the other samples of each row's group.

    Args:
        values: (R, ...), R = B samples rows, the rows of a group side by side.
        samples: two or more.

    Returns:
        (R, ...).
    """
    shape = values.shape[1:]
    each = ops.reshape(values, (-1, samples, *shape))  # (R, ...) -> (B, samples, ...)
    total = ops.sum(each, axis=1, keepdims=True)  # (B, 1, ...)
    return ops.reshape((total - each) / (samples - 1), (-1, *shape))  # -> (R, ...)


def moved_average(average, mean, decay, present=True):
    """Return the moving average after a batch: d b + (1 - d) mean.

    Call it after the batch's terms are computed: a baseline must not depend on the
    samples from which it is subtracted, or the estimator would be biased.

    Args:
        average: b before the batch, a scalar.
        mean: mean reward of the batch.
        decay: d, 0 to 1.
        present: False where the batch has no reward; b is then returned.
    """
    return ops.where(present, decay * average + (1 - decay) * mean, average)


def location_log_probs(alpha, context_weights, mask):
    """Return log alpha_t[s_t] of each location, (R, T), 0 for padding.

    Their sum over t is log p(s|a). ``context_weights`` are one-hot s_t, (R, T, L).
    """
    log_probs = ops.sum(context_weights * _log(alpha), axis=-1)  # (R, T, L) -> (R, T)
    return log_probs * ops.cast(mask, alpha.dtype)


def location_entropies(alpha, mask):
    """Return H[s] = -sum_t sum_i alpha_ti log alpha_ti of each caption, in nats, (R,).

    ``alpha`` is (R, T, L).
    """
    entropy = -ops.sum(alpha * _log(alpha), axis=-1)  # (R, T, L) -> (R, T)
    return ops.sum(entropy * ops.cast(mask, alpha.dtype), axis=-1)  # (R, T) -> (R,)


def _log(alpha):
    """Return log alpha, finite where alpha has become 0."""
    return ops.log(ops.maximum(alpha, 1e-30))  # float32 ends at 1e-38
