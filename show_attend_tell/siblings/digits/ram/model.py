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

The paper names two extensions, which are off by default. Their networks f_z and f_s
take h_t as f_l does, and only REINFORCE trains them.

* ``zoom = "learned"``: v~_{t+1} ~ N(f_z(h_t), sigma_z^2) and v = clip(v~, -1, 1) is the
  zoom of the next glimpse, whose patches are limit^v times as wide;
  g_t = relu(.. + W_z v_t). A first glimpse that f_l does not choose has v = 0.
* ``stop = "learned"``: after glimpse t < T the flag a_t ~ Bernoulli(sigmoid(z_t)) with
  z_t = f_s(h_t) stops at tau = t, and the class is that of softmax(W h_tau); the last
  glimpse always stops. A glimpse costs c, so that R = [the class is right] - c tau.

The policy must keep exploring both values of the flag. Classes after few glimpses are
wrong at first, so the policy learns never to stop, and would not notice when these
classes become right. Two terms prevent this. Back-propagation trains the class after
each glimpse, by the mean of -log p(y | h_t) over t = 1 .. tau. REINFORCE's term has
+ decay/2 sum_t z_t^2, which pulls saturated logits back to 0: their own gradient
vanishes with sigmoid'(z).

Place, zoom and flag sampled from h_t are one decision, with the log-probability::

    log pi_t = log p(a_t) + (1 - a_t) (log N(l~_{t+1}) + log N(v~_{t+1}))

The sums over t end at tau. The learned baseline b_t predicts the rest of the episode,
so its target is R_t = R + c t, without the price already paid; the other baselines
predict R. All rows of a batch take T glimpses; every term ignores glimpses after tau.
"""

import collections
import math
from typing import Any, NamedTuple

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
    """The random numbers that decide the places, zooms and stops of a batch.

    ``steps`` is standard normal noise where f_l chooses the place, or 0 for its mean;
    with random locations it is the place itself. ``zoom`` is standard normal noise, or
    0 for the mean. A glimpse is the last if its number in ``stop``, uniform in [0, 1),
    is below the probability of stopping; 0.5 chooses the more likely flag. A model that
    learns neither uses neither.
    """

    first: Any  # (R, 2), l_1 unless f_l chooses it
    steps: Any  # (R, T, 2)
    zoom: Any = None  # (R, T)
    stop: Any = None  # (R, T), column t decides before glimpse t + 1


@keras.saving.register_keras_serializable("show_attend_tell")
class RecurrentAttention(DigitClassifier):
    """A classifier that sees a picture by glimpses.

    See :class:`DigitClassifier` for the arguments; ``seed`` also seeds the places.
    """

    settings_class = GlimpseSettings
    may_be_new = ("join_zoom", "zoom_hidden", "zoom", "stop_hidden", "stop")

    def __init__(self, settings, canvas, classes=10, seed=0, names=(), **kwargs):
        super().__init__(settings, canvas, classes, seed, names, **kwargs)
        self.reach = self.settings.reach or canvas / 2
        self.glimpses = self.settings.glimpses
        self.generator = keras.random.SeedGenerator(seed)
        s = self.settings
        inputs = s.scales * s.patch**2
        # A longer list begins with the seeds of a shorter one.
        seeds = map(int, np.random.SeedSequence(seed).generate_state(16))

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

        def policy(name, units, activation):
            """Return the layers of a network that chooses."""
            layers = []
            before = s.location_width or s.width
            if s.location_width:
                layers.append(dense(s.width, before, f"{name}_hidden", "relu"))
            layers.append(dense(before, units, name, activation))
            # Near 0 at the start: a policy that starts in a corner stays there.
            layers[-1].kernel.assign(0.1 * layers[-1].kernel)
            return layers

        self.locate = policy("locate", 2, "tanh")
        self.act = dense(s.width, classes, "act")
        self.expect = dense(s.width, 1, "expect")
        # Made last, so that all other layers have the same initial weights without
        # them.
        if s.zoom == "learned":
            self.join_zoom = dense(1, s.width, "join_zoom")
            self.choose_zoom = policy("zoom", 1, "tanh")
        if s.stop == "learned":
            self.choose_stop = policy("stop", 1, None)
            # At the start each glimpse is the last with a probability of about 1/T, so
            # that the classes after every number of glimpses are trained.
            self.choose_stop[-1].bias.assign([-math.log(s.glimpses - 1)])
        # A weight, so that a checkpoint contains the average.
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
        noise = PlaceNoise(first, steps)
        if self.settings.zoom == "learned":
            zoom = keras.random.normal(shape[:2], seed=self.generator)
            noise = noise._replace(zoom=zoom)
        if self.settings.stop == "learned":
            stop = keras.random.uniform(shape[:2], seed=self.generator)
            noise = noise._replace(stop=stop)
        return noise

    def call(self, images, training=False):
        """Classify pictures; see :meth:`look`.

        Args:
            images: (B, H, H) in [0, 1].
            training: whether to sample places, zooms and stops, ``settings.samples``
                times for each picture, side by side; otherwise places and zooms are the
                policy's means, and it stops where that is the more likely flag.
        """
        if training:
            images = ops.repeat(images, self.settings.samples, axis=0)
        noise = self.sample_noise(ops.shape(images)[0])
        if not training:
            if self.settings.locations == "learned":
                noise = noise._replace(steps=ops.zeros_like(noise.steps))
            if self.settings.zoom == "learned":
                noise = noise._replace(zoom=ops.zeros_like(noise.zoom))
            if self.settings.stop == "learned":
                noise = noise._replace(stop=ops.full_like(noise.stop, 0.5))
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
            the last; ``locations`` (R, T, 2), the clipped places; for the D sampled
            places ``means`` (R, D, 2); and for the D decisions ``log_probs`` and
            ``baselines`` (R, D). With learned zoom, ``zooms`` (R, T), the factors of
            the patches' sides. With learned stop, ``glimpses`` (R,), the numbers tau of
            the last glimpses, whose logits are ``logits``, ``made`` (R, D), 1 for
            decisions before it stopped, else 0, and ``stop_logits`` (R, T - 1), z.
        """
        s = self.settings
        state = self._start(images)
        found = collections.defaultdict(list)
        states = []
        going = ops.ones_like(noise.first[:, 0])  # (R,), 0 after it has stopped
        glimpses = ops.zeros_like(going)  # how many were taken
        for t in range(s.glimpses):
            place = noise.steps[:, t] if at_random and t else noise.first
            if t == 0 and s.first == "centre":
                place = ops.zeros_like(noise.first)
            drawn = {}
            if t or s.first == "learned":
                drawn = self._decide(state[0], noise, t, at_random)
            for name in ("means", "log_probs", "baselines", "stop_logits"):
                if name in drawn:
                    found[name].append(drawn[name])
            # Before `going` changes: the decision to stop is itself a decision that was
            # made.
            if drawn and s.stop == "learned":
                found["made"].append(going)
            if "flag" in drawn:
                # A product, not a branch: the rows of a batch stop at different
                # glimpses.
                going = going * (1 - drawn["flag"])
            glimpses = glimpses + going
            # Clipped here and not in `_sample_place`, whose density is that of l~.
            place = ops.clip(drawn.get("place", place), -1.0, 1.0)
            found["locations"].append(place)
            zoom = None
            if s.zoom == "learned":
                zoom = ops.clip(drawn.get("zoom", ops.zeros_like(going)), -1.0, 1.0)
                found["zooms"].append(s.zoom_limit**zoom)
            state = self._step(state, self._glimpse(images, place, zoom))
            states.append(state[0])
        outputs = {name: ops.stack(values, axis=1) for name, values in found.items()}
        # One product for all glimpses, (R, T, width) -> (R, T, classes).
        outputs["step_logits"] = self.act(ops.stack(states, axis=1))
        outputs["logits"] = self.act(state[0])
        if s.stop == "learned":
            # A product selects glimpse tau, because a gather is slow in a compiled
            # step.
            last = ops.one_hot(ops.cast(glimpses, "int32") - 1, s.glimpses)  # (R, T)
            last = ops.expand_dims(last, -1)
            outputs["logits"] = ops.sum(last * outputs["step_logits"], axis=1)
            outputs["glimpses"] = glimpses
        return outputs

    def _decide(self, h, noise, t, at_random) -> dict:
        """Return what the policy draws from h before glimpse t + 1, by name.

        ``log_probs`` has the probability of all of it; empty if nothing is drawn.
        """
        s = self.settings
        drawn = {}
        log_prob = 0.0
        if not at_random:
            drawn["means"], drawn["place"], log_place = self._sample_place(
                h, noise.steps[:, t]
            )
            log_prob = log_prob + log_place
        if s.zoom == "learned":
            drawn["zoom"], log_zoom = self._sample_zoom(h, noise.zoom[:, t])
            log_prob = log_prob + log_zoom
        # Before the first glimpse, which is always taken, there is no flag.
        if t and s.stop == "learned":
            logit, flag, log_flag = self._sample_stop(h, noise.stop[:, t])
            drawn["stop_logits"] = logit
            drawn["flag"] = flag
            # Where it stops there is no next glimpse to choose.
            log_prob = log_flag + (1 - flag) * log_prob
        if drawn:
            drawn["log_probs"] = log_prob
            # The error of the baseline must not train the core.
            drawn["baselines"] = self.expect(ops.stop_gradient(h))[:, 0]
        return drawn

    def _start(self, images):
        """Return h_0, and the cell of an LSTM; (R, width) each."""
        zeros = ops.zeros((ops.shape(images)[0], self.settings.width))
        return (zeros, zeros) if self.settings.core == "lstm" else (zeros,)

    def _glimpse(self, images, place, zoom=None):
        """Return g_t, (R, width); the zoom v, (R,), is used if it is learned."""
        s = self.settings
        sides = s.zoom_limit**zoom if s.zoom == "learned" else None
        seen = see(images, place, s.patch, s.scales, self.reach, sides)  # (R, k, g, g)
        seen = ops.reshape(seen, (-1, s.scales * s.patch**2))
        what = self.see_what(seen)
        where = self.see_where(place)
        joined = self.join_what(what) + self.join_where(where)
        if s.zoom == "learned":
            joined = joined + self.join_zoom(ops.expand_dims(zoom, -1))
        return ops.relu(joined)

    def _step(self, state, glimpse):
        """Return the core's next state."""
        gates = self.from_state(state[0]) + self.from_glimpse(glimpse)
        if self.settings.core == "lstm":
            return lstm_update(gates, state[1])
        return (ops.relu(gates),)

    def _choose(self, layers, h):
        """Return the output of a network of the policy, (R, units)."""
        output = h if self.settings.policy_reaches == "core" else ops.stop_gradient(h)
        for layer in layers:
            output = layer(output)
        return output

    def _sample_place(self, h, noise):
        """Return mu, l~ and log N(l~; mu, sigma^2 I); (R, 2), (R, 2) and (R,)."""
        mean = self._choose(self.locate, h)
        return mean, *_sample_normal(mean, noise, self.settings.deviation)

    def _sample_zoom(self, h, noise):
        """Return v~ and log N(v~; f_z(h), sigma_z^2), (R,) each."""
        mean = self._choose(self.choose_zoom, h)  # (R, 1)
        noise = ops.expand_dims(noise, -1)
        zoom, log_prob = _sample_normal(mean, noise, self.settings.zoom_deviation)
        return zoom[:, 0], log_prob

    def _sample_stop(self, h, noise):
        """Return z, the flag, 1 to stop, and its log probability, (R,) each."""
        logit = self._choose(self.choose_stop, h)[:, 0]
        flag = ops.cast(noise < ops.sigmoid(logit), "float32")
        flag = ops.stop_gradient(flag)
        # log(1 - sigmoid(z)) as log_sigmoid(-z), which stays finite for a large z.
        log_prob = flag * ops.log_sigmoid(logit) + (1 - flag) * ops.log_sigmoid(-logit)
        return logit, flag, log_prob

    def loss_terms(self, labels, outputs) -> dict:
        """Return the terms of each row's loss, and its reward.

        Args:
            labels: class of each row, (R,).
            outputs: of :meth:`look`.

        Returns:
            ``cross_entropy``, ``baseline_error`` (the second term), ``reinforce`` (the
            third term, without lambda) and ``reward``, R, (R,) each.
        """
        logits = outputs["logits"]
        cross_entropy = self._cross_entropy(labels, outputs)
        right = ops.cast(ops.argmax(logits, axis=-1), "int32")
        right = ops.equal(right, ops.cast(labels, "int32"))
        reward = ops.stop_gradient(ops.cast(right, "float32"))  # (R,)
        if "glimpses" in outputs:
            reward = reward - self.settings.price * outputs["glimpses"]
        terms = {"cross_entropy": cross_entropy, "reward": reward}
        terms |= {k: ops.zeros_like(reward) for k in ("baseline_error", "reinforce")}
        if "log_probs" not in outputs:
            return terms
        difference = self._returns(reward, outputs) - self._baseline(reward, outputs)
        # (R, D) for "learned", else (R, 1), as for the mask of a model without stop.
        made = outputs.get("made", ops.ones_like(difference))
        if self.settings.baseline == "learned":
            squares = made * ops.square(difference)
            terms["baseline_error"] = ops.sum(squares, axis=1) / 2
        # REINFORCE, Eq. (2) and (3): the advantage R - b is a constant, so that only
        # log pi has a gradient, and the baseline learns from its own term alone.
        advantages = ops.stop_gradient(made * difference)
        weighed = advantages * outputs["log_probs"]
        terms["reinforce"] = -ops.sum(weighed, axis=1)
        if self.settings.reinforce_per == "mean":
            # The decisions of each row; without stop `made` may have a single column.
            count = ops.sum(ops.broadcast_to(made, ops.shape(weighed)), axis=1)
            terms["reinforce"] = terms["reinforce"] / count
        if "stop_logits" in outputs:
            # The first place is a decision without a flag.
            squares = made[:, 1 - self.settings.glimpses :] * ops.square(
                outputs["stop_logits"]
            )
            decay = self.settings.stop_decay / 2 * ops.sum(squares, axis=1)
            terms["reinforce"] = terms["reinforce"] + decay
        return terms

    def _cross_entropy(self, labels, outputs):
        """Return -log p(y), (R,), of the last glimpse or the mean of those taken."""
        if "glimpses" not in outputs:
            return keras.losses.sparse_categorical_crossentropy(
                labels, outputs["logits"], from_logits=True
            )
        T = self.settings.glimpses
        labels = ops.repeat(ops.expand_dims(labels, 1), T, axis=1)  # (R,) -> (R, T)
        losses = keras.losses.sparse_categorical_crossentropy(
            labels, outputs["step_logits"], from_logits=True
        )
        taken = ops.expand_dims(outputs["glimpses"], 1)  # (R, 1)
        # (R, T), 1/tau for the glimpses up to tau, else 0
        weights = ops.cast(ops.arange(T, dtype="float32") < taken, "float32") / taken
        return ops.sum(weights * losses, axis=1)

    def _returns(self, reward, outputs):
        """Return what each baseline predicts: R_t, (R, D), or R of each row, (R, 1)."""
        returns = ops.expand_dims(reward, 1)
        if "glimpses" not in outputs or self.settings.baseline != "learned":
            return returns
        decisions = outputs["log_probs"].shape[1]
        first = self.settings.glimpses - decisions  # glimpses before the first decision
        paid = ops.arange(first, self.settings.glimpses, dtype="float32")  # (D,)
        return returns + self.settings.price * paid

    def _baseline(self, reward, outputs):
        """Return b of each decision, (R, D), or of each row, (R, 1)."""
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
        # A label for each run, in the order in which `call` repeats the pictures.
        labels = ops.repeat(ops.cast(labels, "int32"), self.settings.samples, axis=0)
        terms = self.loss_terms(labels, outputs)
        values = {name: ops.mean(term) for name, term in terms.items()}
        loss = values["cross_entropy"] + values["baseline_error"]
        loss = loss + self.settings.reinforce_weight * values["reinforce"]
        # After the loss, whose baseline is the average over earlier batches alone.
        old = ops.convert_to_tensor(self.moving)
        decay = self.settings.baseline_decay
        self.moving.assign(moved_average(old, values["reward"], decay))
        # The share of right classes is the reward without the price.
        right = values["reward"]
        if "glimpses" in outputs:
            values["glimpses"] = ops.mean(outputs["glimpses"])
            right = right + self.settings.price * values["glimpses"]
        values["error"] = 100 * (1 - right)
        return {"loss": loss, **values, **self._place_statistics(outputs)}

    def _place_statistics(self, outputs) -> dict:
        """Return the spread of each glimpse's places, and the size of the means."""
        spread = ops.mean(ops.std(outputs["locations"], axis=0), axis=-1)  # (T,)
        values = {f"spread_{t + 1}": spread[t] for t in range(self.settings.glimpses)}
        if "zooms" in outputs:
            values["zoom"] = ops.mean(outputs["zooms"])
        if "means" not in outputs:
            return values
        size = ops.abs(outputs["means"])
        far = ops.cast(size > FAR, "float32")
        return {**values, "mean_size": ops.mean(size), "mean_far": ops.mean(far)}


def _sample_normal(mean, noise, sigma):
    """Return a sample and its log density, (R, d) and (R,).

    The sample is a constant, so that the gradient of the density reaches the mean.
    """
    # Without stop_gradient sample - mean is sigma eps, and the mean has no gradient.
    sample = ops.stop_gradient(mean + sigma * noise)
    squares = ops.sum(ops.square((sample - mean) / sigma), axis=-1)  # (R, d) -> (R,)
    dimensions = mean.shape[-1]
    return sample, -squares / 2 - dimensions / 2 * math.log(2 * math.pi * sigma**2)
