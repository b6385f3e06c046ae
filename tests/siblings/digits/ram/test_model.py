"""The model of glimpses: equations, loss, gradients, and what it depends on."""

import keras
import made_up_digits
import numpy as np
import pytest
import tiny_ram as tiny
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from made_up_digits import digits
from tiny_ram import B, T

from show_attend_tell.siblings.digits.ram import prediction
from show_attend_tell.siblings.digits.ram.model import RecurrentAttention
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.prediction import Predictor
from show_attend_tell.siblings.digits.ram.retina import see
from show_attend_tell.siblings.digits.settings import GlimpseSettings

VARIANTS = {
    "the default": {},
    "an LSTM": {"core": "lstm"},
    "a linear policy": {"location_width": 0},
    "the centre first": {"first": "centre"},
    "a learned first place": {"first": "learned"},
    "a reach of 3 pixels": {"reach": 3.0},
}


def look(model, batch, at_random=False):
    return keras.tree.map_structure(
        ops.convert_to_numpy, model.look(batch[0], batch[2], at_random)
    )


def expected(model, batch, at_random=False):
    images, _, (first, steps) = batch
    rows = [
        tiny.run(
            model,
            *(np.asarray(x[n], np.float64) for x in (images, first, steps)),
            at_random,
        )
        for n in range(len(images))
    ]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


@pytest.mark.parametrize("at_random", [False, True])
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


LOCATION = {
    f"{layer}/{w}" for layer in ("locate", "locate_hidden") for w in ("kernel", "bias")
}
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
    (words, everything), (baseline, _), (reinforce, _) = (
        reached(model, batch, term) for term in terms
    )
    assert words == everything - LOCATION - BASELINE
    assert baseline == BASELINE
    assert reinforce == LOCATION


def test_the_policy_reaches_the_core_if_it_shall(rng):
    model = tiny.build(rng, policy_reaches="core")
    reinforce, everything = reached(model, tiny.batch(rng, 16), "reinforce")
    assert reinforce == everything - BASELINE - ACTION
    words, _ = reached(model, tiny.batch(rng, 16), "cross_entropy")
    assert not words & LOCATION


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


@pytest.mark.parametrize("glimpses", [2, 6])
def test_the_number_of_parameters_does_not_depend_on_the_glimpses(glimpses):
    changes = GlimpseSettings(glimpses=glimpses, location_width=0)
    model = RecurrentAttention(changes, 28)
    assert sum(np.prod(w.shape) for w in model.trainable_weights) == 209_677


def test_a_compiled_prediction_equals_the_other_one(monkeypatch):
    model, images = CLASSIFIERS.build(made_up_digits.experiment()), digits(20).images
    found = Predictor(model)(images, "sampled", 3)
    monkeypatch.setattr(prediction, "compiled", lambda function, model: function)
    for one, other in zip(Predictor(model)(images, "sampled", 3), found, strict=True):
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
    seed=st.integers(0, 99),
)
def test_patches_equal_means_over_pixels(H, W, cells, scales, x, y, seed):
    images = np.random.default_rng(seed).random((2, H, W), np.float32)
    places = np.array([[x, y], [y, x]], np.float32)
    tensors = map(ops.convert_to_tensor, (images, places))
    found = np.asarray(see(*tensors, cells, scales, H / 2))
    chosen = tiny.settings(patch=cells, scales=scales)
    expected = [
        tiny.retina(*pair, chosen, H / 2) for pair in zip(images, places, strict=True)
    ]
    np.testing.assert_allclose(found.reshape(2, -1), expected, atol=1e-5)
