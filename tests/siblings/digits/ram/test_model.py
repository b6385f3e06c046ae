"""The model of glimpses: equations, loss, gradients, and what it depends on."""

import dataclasses

import keras
import made_up_digits
import numpy as np
import pytest
import tiny_ram as tiny
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from made_up_digits import digits
from nightly import nightly
from tiny_ram import B, T

from show_attend_tell.siblings.common.layers import named_weights
from show_attend_tell.siblings.digits.ram import prediction
from show_attend_tell.siblings.digits.ram.model import (
    PlaceNoise,
    RecurrentAttention,
)
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.prediction import Predictor
from show_attend_tell.siblings.digits.ram.retina import see
from show_attend_tell.siblings.digits.settings import GlimpseSettings

STOP = {"stop": "learned", "price": 0.1}
BOTH = {"zoom": "learned", "zoom_deviation": 0.4}
VARIANTS = {
    "the default": {},
    "an LSTM": {"core": "lstm"},
    "a linear policy": {"location_width": 0},
    "the centre first": {"first": "centre"},
    "a learned first place": {"first": "learned"},
    "a reach of 3 pixels": {"reach": 3.0},
    "a learned zoom": {"zoom": "learned"},
    "a learned zoom from the first glimpse on": {"zoom": "learned", "first": "learned"},
    "a learned stop": STOP,
    "a learned stop and a learned first place": {**STOP, "first": "learned"},
    "zoom and stop": {**STOP, "zoom": "learned", "zoom_limit": 3.0, "core": "lstm"},
}


def look(model, batch, at_random=False):
    return keras.tree.map_structure(
        ops.convert_to_numpy, model.look(batch[0], batch[2], at_random)
    )


def expected(model, batch, at_random=False, decisions=None):
    """Return the outputs in NumPy; the list ``decisions`` gets each row's decisions."""
    images, _, noise = batch
    rows = []
    for n in range(len(images)):
        drawn = []
        image = np.asarray(images[n], np.float64)
        own = PlaceNoise(*(x[n] for x in noise))
        rows.append(tiny.run(model, image, own, at_random, drawn))
        if decisions is not None:
            decisions.append(drawn)
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


@pytest.mark.parametrize("at_random", [False, *nightly(True)])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_outputs_equal_the_equations(rng, changes, at_random):
    model, batch = tiny.build(rng, **changes), tiny.batch(rng)
    ours, theirs = look(model, batch, at_random), expected(model, batch, at_random)
    assert at_random != ("means" in ours)
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, **tiny.TOLERANCE, err_msg=name)


@pytest.mark.parametrize("per", ["sum", "mean"])
@pytest.mark.parametrize("baseline", ["learned", "moving", "samples"])
def test_the_loss_is_that_of_its_equation(rng, baseline, per):
    changes = {"baseline": baseline, "reinforce_per": per, "reinforce_weight": 0.7}
    model = tiny.build(rng, samples=2, **changes)
    model.moving.assign(0.3)
    batch = tiny.batch(rng, 2 * B)
    outputs, labels = expected(model, batch), batch[1][::2]
    given = model.look(batch[0], batch[2])
    loss = float(model.losses_of(labels, given)["loss"])
    rows = []
    repeated = np.repeat(labels, 2)
    rewards = (outputs["logits"].argmax(-1) == repeated).astype(float)
    for n in range(2 * B):
        logits, b = outputs["logits"][n], outputs["baselines"][n]
        if baseline == "moving":
            b = np.full(T - 1, 0.3)
        elif baseline == "samples":
            b = np.full(T - 1, rewards[n + 1 - 2 * (n % 2)])
        row = np.log(np.exp(logits).sum()) - logits[repeated[n]]
        if baseline == "learned":
            row += 0.5 * np.sum((rewards[n] - b) ** 2)
        term = (rewards[n] - b) * outputs["log_probs"][n]
        row -= 0.7 * (term.sum() if per == "sum" else term.mean())
        rows.append(row)
    assert loss == pytest.approx(np.mean(rows), rel=1e-4)
    moved = 0.9 * 0.3 + 0.1 * rewards.mean()
    assert float(model.moving) == pytest.approx(moved, rel=1e-5)


@pytest.mark.parametrize("per", ["sum", *nightly("mean")])
@pytest.mark.parametrize("baseline", ["learned", "moving", "samples"])
@pytest.mark.parametrize("first", ["learned", *nightly("random")])
def test_the_price_lowers_the_reward_and_terms_end_at_the_stop(
    rng, baseline, per, first
):
    changes = {"baseline": baseline, "reinforce_per": per, "reinforce_weight": 0.7}
    changes |= {"first": first, "stop_decay": 0.2}
    model = tiny.build(rng, samples=2, **STOP, **BOTH, **changes)
    model.moving.assign(0.3)
    batch = tiny.batch(rng, 2 * B)
    outputs, labels = expected(model, batch), batch[1][::2]
    losses = model.losses_of(labels, model.look(batch[0], batch[2]))
    repeated = np.repeat(labels, 2)
    right = (outputs["logits"].argmax(-1) == repeated).astype(float)
    taken = outputs["glimpses"]
    assert 1 < len(set(taken))
    rewards = right - 0.1 * taken
    rows = []
    start = 0 if first == "learned" else 1  # glimpses before the first decision
    for n in range(2 * B):
        terms, errors = [], []
        # After glimpse t, of which the last one has nothing to decide.
        for t in range(start, min(taken[n] + 1, T)):
            log_prob = outputs["log_probs"][n, t - start]
            if baseline == "learned":
                still_to_come = right[n] - 0.1 * (taken[n] - t)
                difference = still_to_come - outputs["baselines"][n, t - start]
                errors.append(difference**2 / 2)
            elif baseline == "moving":
                difference = rewards[n] - 0.3
            else:
                difference = rewards[n] - rewards[n + 1 - 2 * (n % 2)]
            terms.append(difference * log_prob)
        entropies = [
            np.log(np.exp(logits).sum()) - logits[repeated[n]]
            for logits in outputs["step_logits"][n, : taken[n]]
        ]
        row = np.mean(entropies) + sum(errors)
        row -= 0.7 * (np.sum(terms) if per == "sum" else np.mean(terms))
        logits_before = outputs["stop_logits"][n, : min(taken[n], T - 1)]
        rows.append(row + 0.7 * 0.2 / 2 * np.sum(logits_before**2))
    assert float(losses["loss"]) == pytest.approx(np.mean(rows), rel=1e-4)
    assert float(losses["reward"]) == pytest.approx(rewards.mean(), abs=1e-6)
    assert float(losses["glimpses"]) == pytest.approx(taken.mean())
    assert float(losses["error"]) == pytest.approx(100 * (1 - right.mean()), abs=1e-4)
    moved = 0.9 * 0.3 + 0.1 * rewards.mean()
    assert float(model.moving) == pytest.approx(moved, rel=1e-5)


def test_the_gradient_of_zoom_and_stop_is_the_hand_made_one(rng):
    """Of log p(a) in the logit, a - p; of log N in the mean, (v - mean) / sigma^2."""
    model, batch = tiny.build(rng, **STOP, **BOTH), tiny.batch(rng, 16)
    decisions = []
    outputs = expected(model, batch, decisions=decisions)

    def reinforce():
        found = model.look(batch[0], batch[2])
        return ops.sum(model.loss_terms(batch[1], found)["reinforce"])

    gradients = tiny.gradients(model, reinforce)
    stop, zoom = 0.0, 0.0
    right = outputs["logits"].argmax(-1) == batch[1]
    for n, drawn in enumerate(decisions):
        taken = outputs["glimpses"][n]
        for t, one in enumerate(drawn[:taken], start=1):
            still_to_come = right[n] - 0.1 * (taken - t)
            advantage = still_to_come - outputs["baselines"][n, t - 1]
            stop -= advantage * (one["flag"] - one["stop"])
            stop += model.settings.stop_decay * outputs["stop_logits"][n, t - 1]
            slope = 1 - one["zoom_mean"] ** 2  # of tanh
            score = (one["v"] - one["zoom_mean"]) / model.settings.zoom_deviation**2
            zoom -= advantage * (1 - one["flag"]) * score * slope
    assert {one["flag"] for drawn in decisions for one in drawn} == {0, 1}
    assert gradients["stop/bias"][0] == pytest.approx(stop, rel=1e-4)
    assert gradients["zoom/bias"][0] == pytest.approx(zoom, rel=1e-4)


def test_the_expected_gradient_of_stop_is_that_of_the_expected_reward(rng):
    """E over all numbers of glimpses tau, each with its probability."""
    model = tiny.build(rng, **STOP, stop_decay=0.0)
    images, labels, noise = tiny.batch(rng, 8)

    def outputs_of(last):
        """Stop after `last` glimpses: a flag is 1 where the noise is 0, 0 where 2."""
        stop = np.full((8, T), 2, np.float32)
        if last < T:
            stop[:, last] = 0
        given = noise._replace(stop=ops.convert_to_tensor(stop))
        return model.look(images, given, at_random=True)

    def chances():
        """Return P(tau), T of (8,), from the sums of the logs of flags."""
        return [
            ops.exp(ops.sum(found["log_probs"] * found["made"], axis=1))
            for found in map(outputs_of, range(1, T + 1))
        ]

    def expected_reward():
        total = 0.0
        for last, chance in enumerate(chances(), start=1):
            logits = outputs_of(last)["step_logits"][:, last - 1]
            right = ops.argmax(logits, axis=-1) == labels
            total = total + chance * (ops.cast(right, "float32") - 0.1 * last)
        return ops.sum(total)

    weights = [ops.convert_to_numpy(chance) for chance in chances()]
    np.testing.assert_allclose(np.sum(weights, axis=0), 1, rtol=1e-5)

    def surrogate():
        terms = [
            model.loss_terms(labels, outputs_of(last))["reinforce"]
            for last in range(1, T + 1)
        ]
        return -sum(ops.sum(w * term) for w, term in zip(weights, terms, strict=True))

    exact, found = (tiny.gradients(model, f) for f in (expected_reward, surrogate))
    for name in STOP_WEIGHTS:
        assert np.abs(exact[name]).max() > 1e-3
        np.testing.assert_allclose(found[name], exact[name], rtol=1e-3, atol=1e-5)


LOCATION = {
    f"{layer}/{w}" for layer in ("locate", "locate_hidden") for w in ("kernel", "bias")
}
ZOOM_WEIGHTS = {name.replace("locate", "zoom") for name in LOCATION}
STOP_WEIGHTS = {name.replace("locate", "stop") for name in LOCATION}
BASELINE = {"expect/kernel", "expect/bias"}
ACTION = {"act/kernel", "act/bias"}


def reached(model, batch, term):
    """Return the names of the weights that one term's gradient reaches."""

    def value():
        outputs = model.look(batch[0], batch[2])
        return ops.sum(model.loss_terms(batch[1], outputs)[term])

    found = tiny.gradients(model, value)
    return {name for name, g in found.items() if np.abs(g).max() > 0}, set(found)


def test_each_term_reaches_the_weights_that_it_should(rng):
    model, batch = tiny.build(rng), tiny.batch(rng, 16)
    terms = ("cross_entropy", "baseline_error", "reinforce")
    (classes, everything), (baseline, _), (reinforce, _) = (
        reached(model, batch, term) for term in terms
    )
    assert classes == everything - LOCATION - BASELINE
    assert baseline == BASELINE
    assert reinforce == LOCATION


def test_only_reinforce_reaches_the_networks_of_zoom_and_stop(rng):
    model, batch = tiny.build(rng, **STOP, **BOTH), tiny.batch(rng, 16)
    terms = ("cross_entropy", "baseline_error", "reinforce")
    (classes, everything), (baseline, _), (reinforce, _) = (
        reached(model, batch, term) for term in terms
    )
    policy = LOCATION | ZOOM_WEIGHTS | STOP_WEIGHTS
    assert classes == everything - policy - BASELINE
    assert "join_zoom/kernel" in classes
    assert baseline == BASELINE
    assert reinforce == policy


def test_the_policy_reaches_the_core_if_it_shall(rng):
    model = tiny.build(rng, policy_reaches="core")
    reinforce, everything = reached(model, tiny.batch(rng, 16), "reinforce")
    assert reinforce == everything - BASELINE - ACTION
    classes, _ = reached(model, tiny.batch(rng, 16), "cross_entropy")
    assert not classes & LOCATION


def test_a_policy_that_is_always_right_as_expected_has_no_gradient(rng):
    model = tiny.build(rng)
    model.expect.kernel.assign(np.zeros(model.expect.kernel.shape))
    model.expect.bias.assign([1.0])
    images, _, noise = tiny.batch(rng)
    labels = ops.argmax(model.look(images, noise)["logits"], axis=-1)

    def reinforce():
        outputs = model.look(images, noise)
        return ops.sum(model.loss_terms(labels, outputs)["reinforce"])

    assert all(np.all(g == 0) for g in tiny.gradients(model, reinforce).values())


def test_samples_are_not_clipped_before_their_density(rng):
    """A mean at the border with samples outside: the density is still that of N."""
    model, (images, _, noise) = tiny.build(rng, deviation=2.0), tiny.batch(rng)
    outputs = look(model, (images, None, noise))
    assert np.abs(outputs["locations"]).max() == 1
    squares = np.sum(np.square(np.asarray(noise.steps)[:, 1:]), axis=-1)
    expected = -squares / 2 - np.log(2 * np.pi * 2.0**2)
    np.testing.assert_allclose(outputs["log_probs"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "at_random"),
    [({"glimpses": 1}, False), ({"locations": "random"}, True)],
)
def test_without_a_policy_the_loss_is_that_of_a_plain_classifier(
    rng, changes, at_random
):
    model, batch = tiny.build(rng, **changes), tiny.batch(rng)
    outputs = model.look(batch[0], batch[2], at_random)
    assert set(outputs) == {"logits", "step_logits", "locations"}
    assert set(model(batch[0], training=True)) == set(outputs)
    loss = float(model.losses_of(batch[1], outputs)["loss"])
    logits = expected(model, batch, at_random)["logits"]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert loss == pytest.approx(-logs[np.arange(B), batch[1]].mean(), rel=1e-4)


def test_training_samples_places_and_inference_takes_their_means(rng):
    model, (images, _, _) = tiny.build(rng, first="centre", samples=3), tiny.batch(rng)
    once, again = (model(images)["locations"] for _ in range(2))
    np.testing.assert_array_equal(once, again)
    sampled = np.asarray(model(images, training=True)["locations"])
    assert sampled.shape == (3 * B, T, 2)
    assert len(np.unique(sampled[:, 1, 0])) > B


def test_inference_takes_the_mean_zoom_and_stops_where_that_is_more_likely(rng):
    model, (images, _, noise) = tiny.build(rng, **STOP, **BOTH), tiny.batch(rng, 16)
    model.settings = dataclasses.replace(model.settings, first="centre")
    zeros = [ops.zeros_like(x) for x in noise[:3]]
    given = images, None, PlaceNoise(*zeros, ops.full_like(noise.stop, 0.5))
    decisions = []
    outputs = expected(model, given, decisions=decisions)
    found = keras.tree.map_structure(ops.convert_to_numpy, model(images))
    for name in ("zooms", "glimpses", "logits"):
        np.testing.assert_allclose(found[name], outputs[name], **tiny.TOLERANCE)
    for n, drawn in enumerate(decisions):
        likely = [one["stop"] > 0.5 for one in drawn]
        first = likely.index(True) + 1 if any(likely) else T
        assert found["glimpses"][n] == first
    sampled = np.asarray(model(images, training=True)["zooms"])
    assert np.all(sampled[:, 0] == 1)
    assert len(np.unique(sampled[:, 1])) == 16
    assert np.all((sampled >= 1 / 2) & (sampled <= 2))


def test_a_new_model_stops_after_each_glimpse_with_the_same_probability(rng):
    settings = tiny.settings(glimpses=4, **STOP)
    model = RecurrentAttention(settings, tiny.H, tiny.CLASSES)
    images = ops.convert_to_tensor(rng.random((2000, tiny.H, tiny.H), np.float32))
    taken = np.asarray(model(images, training=True)["glimpses"])
    shares = np.bincount(taken.astype(int), minlength=5)[1:] / 2000
    np.testing.assert_allclose(shares, [1 / 4, 3 / 16, 9 / 64, 27 / 64], atol=0.05)


def test_zoom_and_stop_leave_the_other_initial_weights_as_they_are():
    plain = RecurrentAttention(GlimpseSettings(), 28, seed=3)
    model = RecurrentAttention(GlimpseSettings(**STOP, **BOTH), 28, seed=3)
    own = named_weights(model)
    for name, weight in named_weights(plain).items():
        np.testing.assert_array_equal(weight, own[name])
    new = {name.split("/")[0] for name in own.keys() - named_weights(plain).keys()}
    assert new == set(RecurrentAttention.may_be_new)


@pytest.mark.parametrize("glimpses", [2, 6])
def test_the_number_of_parameters_does_not_depend_on_the_glimpses(glimpses):
    changes = GlimpseSettings(glimpses=glimpses, location_width=0)
    model = RecurrentAttention(changes, 28)
    assert sum(np.prod(w.shape) for w in model.trainable_weights) == 209_677


@pytest.mark.parametrize("changes", [{**STOP, **BOTH}, *nightly({})])
def test_a_compiled_prediction_equals_the_other_one(monkeypatch, changes):
    experiment = made_up_digits.experiment(glimpse=changes)
    model, images = CLASSIFIERS.build(experiment), digits(20).images
    found = Predictor(model)(images, "sampled", 3)
    assert (found.glimpses is None, found.zooms is None) == (not changes, not changes)
    monkeypatch.setattr(prediction, "compiled", lambda function, model: function)
    for one, other in zip(Predictor(model)(images, "sampled", 3), found, strict=True):
        if one is None:
            assert other is None
        else:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


# --- the retina: patches of several scales as products of matrices, against loops ---

# Places that float32 holds exactly, so that no border of a pixel depends on rounding.
steps = st.integers(-96, 96).map(lambda k: k / 64)


@given(
    H=st.integers(5, 40),
    W=st.integers(5, 40),
    cells=st.integers(1, 6),
    scales=st.integers(1, 3),
    x=steps,
    y=steps,
    zoom=st.sampled_from([None, 0.5, 0.8125, 1.0, 1.75, 3.0]),
    seed=st.integers(0, 99),
)
def test_patches_equal_means_over_pixels(H, W, cells, scales, x, y, zoom, seed):
    images = np.random.default_rng(seed).random((2, H, W), np.float32)
    places = np.array([[x, y], [y, x]], np.float32)
    tensors = map(ops.convert_to_tensor, (images, places))
    zooms = zoom and ops.full((2,), zoom)
    found = np.asarray(see(*tensors, cells, scales, H / 2, zooms))
    chosen = tiny.settings(patch=cells, scales=scales)
    expected = [
        tiny.retina(*pair, chosen, H / 2, zoom or 1.0)
        for pair in zip(images, places, strict=True)
    ]
    np.testing.assert_allclose(found.reshape(2, -1), expected, atol=1e-5)
