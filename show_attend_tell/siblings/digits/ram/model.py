"""Classify pictures by a sequence of glimpses: RAM of arXiv:1406.6247, Sec. 3.

At each of T glimpses the model sees only what the retina returns at a place l_t::

    g_t = relu(W_g relu(W rho(x, l_t)) + W_l relu(W l_t))   glimpse network
    h_t = relu(W_h h_{t-1} + W_x g_t), h_0 = 0              core
    mu_{t+1} = f_l(h_t), l~_{t+1} ~ N(mu_{t+1}, sigma^2 I)  location policy
    p(y | x) = softmax(W h_T)                               action

with a bias in every W, l_t = clip(l~_t, -1, 1), and (0, 0) the centre of the picture.
No gradient passes through a place, so REINFORCE trains the policy, Eq. (1)-(3).
The reward R is 1 if the most likely class is right, else 0, and the loss of a picture
is::

    - log p(y | x)                                           back-propagation
    + 1/2 sum_t (R - b_t)^2                                  baseline
    - lambda sum_t (R - b_t) log N(l~_t; mu_t, sigma^2 I)    REINFORCE

Weights that each term reaches:

* Back-propagation reaches the action, the core and the glimpse network.
* The baseline's term reaches only the baseline b_t = W h_{t-1} + b: h is a constant in
  this term, and the advantage R - b_t is a constant in REINFORCE.
* REINFORCE reaches the location network f_l, where h is a constant; with
  ``policy_reaches = "core"`` it also reaches what h was computed from. Its density is
  the density of l~ before clipping: the clipped place is not a sample of N.

T glimpses have T - 1 sampled places, or T with ``first = "learned"``, where f_l(h_0)
samples the first place.
"""

import math
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from show_attend_tell.models.lstm.cell import lstm_update
from show_attend_tell.models.lstm.hard_attention import mean_of_others, moved_average
from show_attend_tell.siblings.common.layers import make_dense
from show_attend_tell.siblings.digits.classifier import DigitClassifier
from show_attend_tell.siblings.digits.ram.retina import see
from show_attend_tell.siblings.digits.settings import GlimpseSettings

FAR = 0.95  # coordinate of a mean beyond which the policy is at the border


class PlaceNoise(NamedTuple):
    """The random numbers that decide the places of a batch.

    ``steps`` is standard normal noise where f_l chooses the place, or 0 for its mean;
    with random locations it is the place itself.
    """

    first: object  # (R, 2), l_1 unless f_l chooses it
    steps: object  # (R, T, 2)


@keras.saving.register_keras_serializable("show_attend_tell")
class RecurrentAttention(DigitClassifier):
    """A classifier that sees a picture by glimpses.

    See :class:`DigitClassifier` for the arguments; ``seed`` also seeds the places.
    """

    settings_class = GlimpseSettings

    def __init__(self, settings, canvas, classes=10, seed=0, **kwargs):
        super().__init__(settings, canvas, classes, seed, **kwargs)
        self.reach = self.settings.reach or canvas / 2
        self.glimpses = self.settings.glimpses
        self.generator = keras.random.SeedGenerator(seed)
        s = self.settings
        inputs = s.scales * s.patch**2
        seeds = map(int, np.random.SeedSequence(seed).generate_state(11))

        def dense(inputs, units, name, activation=None):
            kernel = keras.initializers.GlorotUniform(next(seeds))
            return make_dense(inputs, units, name, kernel, activation)

        self.see_what = dense(inputs, s.glimpse_width, "see_what", "relu")
        self.see_where = dense(2, s.glimpse_width, "see_where", "relu")
        self.join_what = dense(s.glimpse_width, s.width, "join_what")
        self.join_where = dense(s.glimpse_width, s.width, "join_where")
        gates = 4 * s.width if s.core == "lstm" else s.width
        self.from_state = dense(s.width, gates, "from_state")
        if s.core == "relu":
            # With the identity, the state neither fades nor grows over many steps.
            self.from_state.kernel.assign(np.eye(s.width))
        self.from_glimpse = dense(s.width, gates, "from_glimpse")
        before = s.location_width or s.width
        self.locate = []
        if s.location_width:
            self.locate.append(dense(s.width, before, "locate_hidden", "relu"))
        self.locate.append(dense(before, 2, "locate", "tanh"))
        # Near 0 at the start: a policy that starts in a corner stays there.
        self.locate[-1].kernel.assign(0.1 * self.locate[-1].kernel)
        self.act = dense(s.width, classes, "act")
        self.expect = dense(s.width, 1, "expect")
        self.moving = self.add_weight(
            shape=(), initializer="zeros", trainable=False, name="moving_reward"
        )
        self.built = True

    def sample_noise(self, rows) -> PlaceNoise:
        """Return the random numbers of a batch of R rows."""
        first = keras.random.uniform((rows, 2), -1.0, 1.0, seed=self.generator)
        shape = (rows, self.settings.glimpses, 2)
        if self.settings.locations == "random":
            steps = keras.random.uniform(shape, -1.0, 1.0, seed=self.generator)
        else:
            steps = keras.random.normal(shape, seed=self.generator)
        return PlaceNoise(first, steps)

    def call(self, images, training=False):
        """Classify pictures; see :meth:`look`.

        Args:
            images: (B, H, H) in [0, 1].
            training: whether to sample places, ``settings.samples`` times for each
                picture, side by side; otherwise the places are the policy's means.
        """
        if training:
            images = ops.repeat(images, self.settings.samples, axis=0)
        noise = self.sample_noise(ops.shape(images)[0])
        if not training and self.settings.locations == "learned":
            noise = noise._replace(steps=ops.zeros_like(noise.steps))
        return self.look(images, noise, self.settings.locations == "random")

    def look(self, images, noise: PlaceNoise, at_random=False):
        """Take T glimpses and classify.

        Args:
            images: (R, H, H) in [0, 1].
            noise: the random numbers of the places.
            at_random: whether ``noise`` holds the places, not the policy's noise.

        Returns:
            ``logits`` (R, classes) after the last glimpse; ``step_logits``
            (R, T, classes), logits after every glimpse, although the loss uses only
            the last; ``locations`` (R, T, 2), the clipped places; and for the D sampled
            places ``means`` (R, D, 2), ``log_probs`` and ``baselines`` (R, D).
        """
        s = self.settings
        state = self._start(images)
        places = []
        means = []
        log_probs = []
        baselines = []
        states = []
        for t in range(s.glimpses):
            place = noise.steps[:, t] if at_random and t else noise.first
            if t == 0 and s.first == "centre":
                place = ops.zeros_like(noise.first)
            if not at_random and (t or s.first == "learned"):
                mean, place, log_prob = self._sample_place(state[0], noise.steps[:, t])
                means.append(mean)
                log_probs.append(log_prob)
                baselines.append(self.expect(ops.stop_gradient(state[0]))[:, 0])
            place = ops.clip(place, -1.0, 1.0)
            places.append(place)
            state = self._step(state, self._glimpse(images, place))
            states.append(state[0])
        outputs = {
            "logits": self.act(state[0]),
            "step_logits": self.act(ops.stack(states, axis=1)),
            "locations": ops.stack(places, axis=1),
        }
        named = {"means": means, "log_probs": log_probs, "baselines": baselines}
        sampled = {k: ops.stack(v, axis=1) for k, v in named.items() if v}
        return {**outputs, **sampled}

    def _start(self, images):
        """Return h_0, and the cell of an LSTM; (R, width) each."""
        zeros = ops.zeros((ops.shape(images)[0], self.settings.width))
        return (zeros, zeros) if self.settings.core == "lstm" else (zeros,)

    def _glimpse(self, images, place):
        """Return g_t, (R, width)."""
        s = self.settings
        seen = see(images, place, s.patch, s.scales, self.reach)  # (R, k, g, g)
        seen = ops.reshape(seen, (-1, s.scales * s.patch**2))
        what = self.see_what(seen)
        where = self.see_where(place)
        return ops.relu(self.join_what(what) + self.join_where(where))

    def _step(self, state, glimpse):
        """Return the core's next state."""
        gates = self.from_state(state[0]) + self.from_glimpse(glimpse)
        if self.settings.core == "lstm":
            return lstm_update(gates, state[1])
        return (ops.relu(gates),)

    def _sample_place(self, h, noise):
        """Return mu, l~ and log N(l~; mu, sigma^2 I); (R, 2), (R, 2) and (R,)."""
        mean = h if self.settings.policy_reaches == "core" else ops.stop_gradient(h)
        for layer in self.locate:
            mean = layer(mean)
        sigma = self.settings.deviation
        place = ops.stop_gradient(mean + sigma * noise)
        squares = ops.sum(ops.square((place - mean) / sigma), axis=-1)  # (R, 2) -> (R,)
        return mean, place, -squares / 2 - math.log(2 * math.pi * sigma**2)

    def loss_terms(self, labels, outputs) -> dict:
        """Return the terms of each row's loss, and its reward.

        Args:
            labels: class of each row, (R,).
            outputs: of :meth:`look`.

        Returns:
            ``cross_entropy``, ``baseline_error`` (the second term), ``reinforce`` (the
            third term, without lambda) and ``reward``, (R,) each.
        """
        logits = outputs["logits"]
        cross_entropy = keras.losses.sparse_categorical_crossentropy(
            labels, logits, from_logits=True
        )
        right = ops.cast(ops.argmax(logits, axis=-1), "int32")
        right = ops.equal(right, ops.cast(labels, "int32"))
        reward = ops.stop_gradient(ops.cast(right, "float32"))  # (R,)
        terms = {"cross_entropy": cross_entropy, "reward": reward}
        terms |= {k: ops.zeros_like(reward) for k in ("baseline_error", "reinforce")}
        if "log_probs" not in outputs:
            return terms
        difference = ops.expand_dims(reward, 1) - self._baseline(reward, outputs)
        if self.settings.baseline == "learned":
            terms["baseline_error"] = ops.sum(ops.square(difference), axis=1) / 2
        advantages = ops.stop_gradient(difference)  # (R, D) or (R, 1)
        average = ops.mean if self.settings.reinforce_per == "mean" else ops.sum
        terms["reinforce"] = -average(advantages * outputs["log_probs"], axis=1)
        return terms

    def _baseline(self, reward, outputs):
        """Return b of each sampled place, (R, D), or of each row, (R, 1)."""
        if self.settings.baseline == "learned":
            return outputs["baselines"]
        if self.settings.baseline == "samples":
            return ops.expand_dims(mean_of_others(reward, self.settings.samples), 1)
        return ops.broadcast_to(self.moving, (ops.shape(reward)[0], 1))

    def losses_of(self, labels, outputs) -> dict:
        """Return the mean loss of a training step and the values to log, as scalars.

        The moving average of the reward is updated. ``outputs`` are those of
        :meth:`call`, for one or more runs of each picture.
        """
        labels = ops.repeat(ops.cast(labels, "int32"), self.settings.samples, axis=0)
        terms = self.loss_terms(labels, outputs)
        values = {name: ops.mean(term) for name, term in terms.items()}
        loss = values["cross_entropy"] + values["baseline_error"]
        loss = loss + self.settings.reinforce_weight * values["reinforce"]
        old = ops.convert_to_tensor(self.moving)
        decay = self.settings.baseline_decay
        self.moving.assign(moved_average(old, values["reward"], decay))
        values["error"] = 100 * (1 - values["reward"])
        return {"loss": loss, **values, **self._place_statistics(outputs)}

    def _place_statistics(self, outputs) -> dict:
        """Return the spread of each glimpse's places, and the size of the means."""
        spread = ops.mean(ops.std(outputs["locations"], axis=0), axis=-1)  # (T,)
        values = {f"spread_{t + 1}": spread[t] for t in range(self.settings.glimpses)}
        if "means" not in outputs:
            return values
        size = ops.abs(outputs["means"])
        far = ops.cast(size > FAR, "float32")
        return {**values, "mean_size": ops.mean(size), "mean_far": ops.mean(far)}
