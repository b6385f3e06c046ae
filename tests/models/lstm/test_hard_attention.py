"""Hard attention: its equations recomputed, and the weights each term reaches."""

import hard_model
import numpy as np
import oracle
import pytest
import tiny_captioner as tiny
from hard_model import outputs_of
from keras import ops
from nightly import nightly
from tiny_captioner import LENGTHS, MODES, TOLERANCE, B, L, T, arrays, run_in

from show_attend_tell.models.lstm.attention import sampled_location
from show_attend_tell.models.lstm.hard_attention import (
    LocationNoise,
    location_entropies,
    location_log_probs,
    mean_of_others,
)
from show_attend_tell.reference import lstm
from show_attend_tell.reference.beam import sample_index

BASELINE = -3.0
HARD = {"samples": 2, "entropy_weight": 0.3, "reward_scale": 0.5}
HARD |= {"reinforce_weight": 0.7, "drawn_per": "caption"}
SAMPLED = np.float32([1, 0, 1, 1, 0, 1])  # two samples of each of three captions


@pytest.mark.parametrize("mode", MODES)
def test_a_sampled_location_inverts_the_cumulative_sum_of_alpha(rng, mode):
    alpha = rng.dirichlet(np.ones(L), 50).astype(np.float32)
    u = rng.random((50, 1), np.float32)
    s = run_in(mode, sampled_location, alpha, u)
    expected = [int(sample_index(*pair)) for pair in zip(alpha, u[:, 0], strict=True)]
    np.testing.assert_array_equal(s, np.eye(L)[expected])
    assert len(set(expected)) == L


def test_in_half_precision_many_locations_are_sampled_with_the_frequencies_alpha():
    many, each = 196, 20
    alpha = ops.cast(np.full((many * each, many), 1 / many), "bfloat16")
    u = (np.arange(many * each, dtype="f4")[:, None] + 0.5) / (many * each)
    s = ops.convert_to_numpy(ops.cast(sampled_location(alpha, u), "float32"))
    np.testing.assert_allclose(s.sum(0), each, atol=1)


def test_an_attention_weight_of_zero_costs_nothing_and_breaks_nothing():
    alpha, mask = np.float32([[[1, 0, 0, 0, 0, 0]]]), np.ones((1, 1))
    np.testing.assert_allclose(location_entropies(alpha, mask), 0)
    np.testing.assert_allclose(location_log_probs(alpha, alpha, mask), 0)


def expected_rows(model, batch, noise):
    """Return the oracle's outputs of each row and its locations, None if expected."""
    p, rows = tiny.weights(model), []

    def read_caption(p, a, words, locations):
        return lstm.read(p, model.settings, a, words, locations=locations)

    samples = len(noise.u) // len(batch[0])
    for r, (u, sampled) in enumerate(zip(*noise, strict=True)):
        a, inputs = batch[0][r // samples].astype(float), batch[1][r // samples]
        length = (batch[2][r // samples] > 0).sum()
        s = None
        if sampled:
            s = []
            for t in range(length):  # the location of a step depends on those before
                read = read_caption(p, a, inputs[: t + 1], [*s, 0])
                s.append(sample_index(read["alpha"][t], u[t]))
        rows.append((read_caption(p, a, inputs[:length], s), s))
    return rows


@pytest.mark.parametrize(
    ("mode", "reward_per", "baseline"),
    [
        ("eager", "caption", "moving"),
        ("eager", "caption", "samples"),
        ("eager", "word", "moving"),
        ("eager", "caption_mean", "moving"),
        pytest.param("jit", "caption_mean", "moving", marks=pytest.mark.slow),
        ("eager", "caption_mean", "samples"),
        ("eager", "word", "samples"),
        *nightly(*((mode, "word", "samples") for mode in MODES if mode != "eager")),
    ],
)
def test_outputs_and_surrogate_are_the_oracles(rng, mode, reward_per, baseline):
    hard = {**HARD, "reward_per": reward_per, "baseline": baseline}
    model, batch = hard_model.build(rng, hard), tiny.batch(rng)
    model.hard_attention.baseline.assign(BASELINE)
    noise = hard_model.location_noise(rng, 2 * B, sampled=SAMPLED)

    def compute(a, inputs, targets, u, sampled):
        found = outputs_of(model, a, inputs, LocationNoise(u, sampled), samples=2)
        return found, model.compute_loss(y=targets, y_pred=found, training=True)

    found, loss = run_in(mode, compute, *batch, *noise)
    losses = []
    rows = expected_rows(model, batch, noise)
    for r, (expected, s) in enumerate(rows):
        words = batch[2][r // 2][: LENGTHS[r // 2]]
        other, _ = rows[r + 1 - 2 * (r % 2)]
        for name in ("logits", "alpha", "beta"):
            own = found[name][r, : len(words)]
            np.testing.assert_allclose(own, expected[name], **TOLERANCE)
        losses.append(
            oracle.surrogate(expected, words, s, BASELINE, model.hard, [other])
        )
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-5)


@pytest.mark.nightly
def test_the_authors_weights_times_the_batch_size_give_the_authors_sums(rng):
    """The reported likelihood is a mean over captions, the other terms are sums."""
    hard = {"reward_per": "caption_mean", "reward_scale": 0.1, "reinforce_weight": B}
    model = hard_model.build(rng, {**hard, "entropy_weight": B * 0.002})
    model.hard_attention.baseline.assign(BASELINE)
    a, inputs, targets = tiny.batch(rng, (T, T, T), T)  # captions of one length
    noise = hard_model.location_noise(rng, B)
    outputs = outputs_of(model, a, inputs, noise)
    loss = float(model.compute_loss(y=targets, y_pred=outputs, training=True))
    likelihood, rest = 0.0, 0.0
    for n, (read, s) in enumerate(expected_rows(model, (a, inputs, targets), noise)):
        log_p = oracle.log_likelihood(read["logits"], targets[n])
        likelihood += log_p / B
        reward = (log_p / T - BASELINE) / 10
        rest += reward * oracle.location_log_prob(read["alpha"], s)
        rest += 0.002 * oracle.location_entropy(read["alpha"])
    assert loss == pytest.approx(-(likelihood + rest), rel=1e-5)


def test_training_samples_and_evaluation_uses_the_expected_context(rng):
    model, (a, inputs, targets) = hard_model.build(rng, HARD), tiny.batch(rng)
    x = {"annotations": a, "tokens": inputs}
    evaluated, trained = arrays(model(x)), arrays(model(x, training=True))
    assert set(evaluated) == {"logits", "alpha", "beta"}
    soft = tiny.expected(model, a, inputs)["logits"]
    np.testing.assert_allclose(evaluated["logits"], soft, **TOLERANCE)
    assert trained["logits"].shape[0] == trained["sampled"].shape[0] == 2 * B
    for r, sampled in enumerate(trained["sampled"]):
        one_hot = (trained["context_weights"][r].max(-1) == 1).all()
        assert one_hot == bool(sampled)
        if not sampled:
            np.testing.assert_array_equal(
                trained["context_weights"][r], trained["alpha"][r]
            )
    loss = float(model.compute_loss(y=targets, y_pred=evaluated, training=False))
    each = [-oracle.log_likelihood(row[:n], y[:n])
            for row, y, n in zip(soft, targets, LENGTHS, strict=True)]  # fmt: skip
    assert loss == pytest.approx(np.mean(each), rel=1e-5)


@pytest.mark.parametrize(("per", "kinds"), [("minibatch", {0, 40}), ("caption", None)])
def test_the_expected_value_replaces_minibatches_or_captions(rng, per, kinds):
    layer = hard_model.build(rng, {"drawn_per": per}).hard_attention
    counts = [int(np.sum(layer.sample_noise(40, T).sampled)) for _ in range(60)]
    assert 0.35 < np.mean(counts) / 40 < 0.65
    assert set(counts) == kinds if kinds else len(set(counts) - {0, 40}) > 5
    always = hard_model.build(rng, {"drawn_per": per, "sampling_probability": 1})
    assert np.all(np.asarray(always.hard_attention.sample_noise(7, T).sampled) == 1)


F_ATT = {"w_a_0", "b_a_0", "w_h", "w_att"}
DEEP_OUTPUT = {"l_h", "l_b", "l_z", "l_o", "l_o_b"}


def reached(model, batch, term, sampled):
    """Return the names of the weights that one term's gradient reaches."""
    mask = np.float32(batch[2] > 0)
    noise = hard_model.location_noise(
        np.random.default_rng(4), B, sampled=np.full(B, sampled, "f4")
    )

    def value():
        outputs = outputs_of(model, *batch[:2], noise)
        nll = ops.sparse_categorical_crossentropy(batch[2], outputs["logits"], True)
        words = -nll * mask
        rest = model.hard_attention.terms(ops.stop_gradient(words), outputs, mask)
        return ops.sum((words, *rest)[term])

    found = tiny.gradients(value, model)
    return {name for name, g in found.items() if np.abs(g).max() > 0}


def test_each_term_reaches_the_weights_that_it_should(rng):
    model, batch = hard_model.build(rng), tiny.batch(rng)
    everything = set(tiny.weights(model))
    rest = everything - DEEP_OUTPUT
    for sampled, expected in (
        (1, [everything - F_ATT, rest, rest]),
        (0, [everything, set(), rest]),
    ):
        assert [reached(model, batch, k, sampled) for k in range(3)] == expected


@pytest.mark.nightly
def test_the_surrogate_of_a_batch_is_the_mean_of_its_captions_alone(rng):
    model, longer = hard_model.build(rng, HARD), 2
    batch = tiny.batch(rng, (*LENGTHS, 0, 0), T + longer)
    noise = hard_model.location_noise(rng, 10, T + longer)

    def loss(rows, steps):
        model.hard_attention.baseline.assign(BASELINE)
        a, inputs, targets = (x[rows] for x in batch)
        own = [r for b in range(5)[rows] for r in (2 * b, 2 * b + 1)]
        part = LocationNoise(noise.u[own][:, :steps], noise.sampled[own])
        outputs = outputs_of(model, a, inputs[:, :steps], part, samples=2)
        return float(model.compute_loss(y=targets[:, :steps], y_pred=outputs))

    alone = [loss(slice(b, b + 1), T) for b in range(B)]
    assert loss(slice(0, 5), T + longer) == pytest.approx(np.mean(alone), rel=1e-5)


@pytest.mark.parametrize("reward_per", ["caption", "caption_mean", "word"])
def test_the_baseline_is_the_moving_average_of_sampled_rewards(rng, reward_per):
    hard = {**HARD, "reward_per": reward_per}
    model, (a, inputs, targets) = hard_model.build(rng, hard), tiny.batch(rng)
    model.hard_attention.baseline.assign(BASELINE)
    noise = hard_model.location_noise(rng, 2 * B, sampled=SAMPLED)
    expected = expected_rows(model, (a, inputs, targets), noise)
    rewards = [
        oracle.log_likelihood(row["logits"], targets[r // 2][: LENGTHS[r // 2]])
        for r, (row, _) in enumerate(expected)
    ]
    outputs = outputs_of(model, a, inputs, noise, samples=2)
    model.compute_loss(y=targets, y_pred=outputs, training=True)
    steps = np.repeat(LENGTHS, 2)
    counted = SAMPLED * (1 if reward_per == "caption" else steps)
    mean = (SAMPLED * rewards).sum() / counted.sum()
    now = float(model.hard_attention.baseline)
    assert now == pytest.approx(0.9 * BASELINE + 0.1 * mean, rel=1e-5)
    values = {m.name: float(m.result()) for m in model.metrics}
    assert values["reward"] == pytest.approx(np.mean(rewards), rel=1e-5)
    assert values["reward_variance"] == pytest.approx(np.var(rewards), rel=1e-4)
    assert values["baseline"] == BASELINE
    entropies = [oracle.location_entropy(row["alpha"]) for row, _ in expected]
    assert values["entropy"] == pytest.approx(sum(entropies) / steps.sum(), rel=1e-5)
    assert values["sampled"] == pytest.approx((SAMPLED * steps).sum() / steps.sum())
    unsampled = {**outputs, "sampled": ops.zeros(2 * B)}
    model.compute_loss(y=targets, y_pred=unsampled, training=True)
    assert float(model.hard_attention.baseline) == now


@pytest.mark.parametrize("shape", [(6,), (6, 4), (6, 2, 3)])
@pytest.mark.parametrize("samples", [2, 3, 6])
def test_the_baseline_of_a_sample_is_the_mean_of_the_others_of_its_group(
    rng, shape, samples
):
    values = rng.standard_normal(shape).astype("float32")
    found = np.asarray(mean_of_others(values, samples))
    for row in range(6):
        first = row - row % samples
        others = [k for k in range(first, first + samples) if k != row]
        np.testing.assert_allclose(found[row], values[others].mean(0), atol=1e-6)
