"""The estimator of L_s is unbiased for every weight, on an enumerable problem.

L = 3 locations, T = 3 words, K = 5 words in the vocabulary: 27 sequences s.
"""

import itertools
import logging

import hard_model
import numpy as np
import oracle
import pytest
import tiny_captioner as tiny
from keras import ops
from nightly import nightly
from random_weights import randomised
from tiny_captioner import MODES, TOLERANCE, run_in

from show_attend_tell.data.vocabulary import START
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.lstm.hard_attention import (
    LocationNoise,
    location_entropies,
    location_log_probs,
)

logger = logging.getLogger(__name__)

L = T = 3
WORDS = ("<pad>", "<start>", "<end>", "<unk>", "a")
INPUTS, TARGETS = np.array([[1, 4, 3]], "i4"), np.array([[4, 3, 2]], "i4")
SEQUENCES = np.array(list(itertools.product(range(L), repeat=T)))
SAMPLES, ESTIMATES, SETTLED = 1000, 150, 50  # after SETTLED estimates b is constant
F_ATT = ("w_a_0", "b_a_0", "w_h", "w_att")
KINDS = {
    "no baseline": {"moves": False, "entropy_weight": 0.4},
    "baseline": {"entropy_weight": 0.4},
    "rewards by the word": {"reward_per": "word"},
    "mean of the words": {"reward_per": "caption_mean", "reinforce_weight": T},
    # Few samples each: were a row in its own baseline, a quarter would be missing.
    "other samples": {
        "baseline": "samples",
        "samples": 4,
        "targets": np.repeat(TARGETS, SAMPLES // 4, axis=0),
    },
}


def build(seed=5, **hard):
    """Return a captioner small enough to enumerate, and a photo for it."""
    rng = np.random.default_rng(seed)
    widths = {"embedding_width": 2, "lstm_width": 3, "attention_width": 3}
    always = {"reward_scale": 1, "sampling_probability": 1, "entropy_weight": 0.0}
    hard = hard_model.HardAttentionSettings(**always | {"samples": SAMPLES} | hard)
    model = Captioner(
        WORDS,
        tiny.settings(attention="hard", **widths),
        annotation_width=3,
        grid=(1, L),
        doubly_stochastic=0.0,
        hard=hard,
    )
    randomised(model, rng, 0.9)
    return model, 1.5 * rng.standard_normal((1, L, 3)).astype("f4")


def outputs_by_sequence(model, photo):
    """Return log p(s|a), log p(y|s,a) and H of every sequence, (27,) tensors."""
    rows = len(SEQUENCES)
    outputs = hard_model.forced(
        model, ops.repeat(photo, rows, 0), np.repeat(INPUTS, rows, 0), SEQUENCES
    )
    mask = np.ones((rows, T), "f4")
    targets = np.repeat(TARGETS, rows, 0)
    nll = ops.sparse_categorical_crossentropy(targets, outputs["logits"], True)
    alpha = outputs["alpha"]
    log_p = location_log_probs(alpha, outputs["context_weights"], mask)
    log_p = ops.sum(log_p, axis=-1)
    return log_p, -ops.sum(nll, axis=-1), location_entropies(alpha, mask)


def enumerated(p, model, photo):
    """Return the oracle's log p(s|a) and log p(y|s,a) of every sequence, (27, 2)."""
    return oracle.enumerate_locations(
        p, photo[0].astype(float), INPUTS[0], TARGETS[0], model.settings
    )


def exact_gradient(model, photo):
    """Return the gradient of L_s + lambda_e E[H], with p(s|a) constant for H."""

    def value():
        log_p, reached, entropy = outputs_by_sequence(model, photo)
        p = ops.exp(log_p)
        bonus = ops.stop_gradient(p) * entropy
        return ops.sum(p * reached + model.hard.entropy_weight * bonus)

    return tiny.gradients(value, model)


@pytest.mark.parametrize(
    ("seed", "mode"),
    [(0, "eager"), *nightly((0, MODES[-1]), *((k, "eager") for k in (1, 2, 3)))],
)
def test_the_bound_is_the_oracles_and_below_the_log_likelihood(seed, mode):
    model, photo = build(seed=seed)
    pairs = enumerated(tiny.weights(model), model, photo)

    def bound_of(photo):
        log_p, reached, _ = outputs_by_sequence(model, photo)
        return log_p, reached, ops.sum(ops.exp(log_p) * reached)

    log_p, reached, bound = run_in(mode, bound_of, photo)
    np.testing.assert_allclose(np.stack([log_p, reached], 1), pairs, **TOLERANCE)
    assert np.exp(pairs[:, 0]).sum() == pytest.approx(1)
    assert bound == pytest.approx(oracle.lower_bound(pairs), rel=1e-5)
    marginal = oracle.log_marginal(pairs)
    assert marginal - 2 < bound < marginal - 1e-3


def test_the_exact_gradient_is_the_slope_of_the_oracles_bound():
    model, photo = build()

    def bound(p):
        return oracle.lower_bound(enumerated(p, model, photo))

    found, rng = exact_gradient(model, photo), np.random.default_rng(0)
    oracle.assert_slopes(found, tiny.weights(model), bound, rng)


@pytest.fixture(scope="module")
def estimated():
    """The exact gradient of each kind, and many estimates of it by the loss."""
    return {kind: estimate(**how) for kind, how in KINDS.items()}


def estimate(moves=True, targets=TARGETS, **hard):
    """Return ({name: exact gradient of TARGETS}, {name: estimates (ESTIMATES, ...)}).

    The moving baseline stays 0 unless it `moves`.
    """
    model, photo = build(**hard)
    inputs = np.pad(targets[:, :-1], [(0, 0), (1, 0)], constant_values=START)
    photos = ops.convert_to_tensor(np.repeat(photo, len(targets), 0))
    inputs, samples = ops.convert_to_tensor(inputs), model.hard.samples
    rows = len(targets) * samples

    def loss(u, b):
        model.hard_attention.baseline.assign(b)
        noise = LocationNoise(u, np.ones(rows, "f4"))
        outputs = hard_model.outputs_of(model, photos, inputs, noise, samples)
        value = model.compute_loss(y=targets, y_pred=outputs, training=True)
        return -value, ops.convert_to_tensor(model.hard_attention.baseline)

    gradient = tiny.gradient_function(loss, model, tiny.MODES[1])
    rng, b, found = np.random.default_rng(1), np.float32(0), []
    for _ in range(ESTIMATES):
        u = rng.random((rows, T), np.float32)
        one, after = gradient(ops.convert_to_tensor(u), ops.convert_to_tensor(b))
        b = np.float32(after) if moves else b
        found.append(one)
    exact = exact_gradient(model, photo)
    return exact, {name: np.stack([one[name] for one in found]) for name in exact}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_estimate_is_the_exact_gradient_for_every_weight(estimated, kind):
    exact, estimates = estimated[kind]
    for name, truth in exact.items():
        rows = estimates[name].reshape(ESTIMATES, -1).astype(float)
        deviation = rows.mean(0) - truth.reshape(-1)
        error = rows.std(0, ddof=1) / np.sqrt(ESTIMATES)
        floor = 1e-6 * np.abs(truth).max()  # rounding of float32
        allowed = 3 * np.linalg.norm(error) + floor
        assert np.linalg.norm(deviation) < allowed, name
        size = np.linalg.norm(truth)
        along = rows @ truth.reshape(-1) / size
        error = along.std(ddof=1) / np.sqrt(ESTIMATES)
        assert abs(along.mean() - size) < 3 * error + floor, name
        assert size > 10 * error, f"{name}: the noise would hide a bias"


@pytest.mark.slow
def test_the_baseline_lowers_the_variance(estimated):
    assert share_left(estimated["baseline"][1], estimated["no baseline"][1]) < 0.05


@pytest.mark.slow
def test_captions_of_unequal_lengths_need_more_than_one_average():
    """A long caption and a short one, whose log p is far from the moving average."""
    targets = np.array([[4, 3, 2], [2, 0, 0]], "i4")
    kinds = ({}, {"reward_per": "word"}, {"baseline": "samples"})
    moving, *better = (estimate(targets=targets, samples=4, **k)[1] for k in kinds)
    for estimates in better:
        assert share_left(estimates, moving) < 0.25


def share_left(better, worse):
    """Return the share of the variance that is left; --log-cli-level=INFO shows all."""
    better, worse = (
        {name: found[name][SETTLED:].var(0).sum() for name in F_ATT}
        for found in (better, worse)
    )
    ratios = {name: better[name] / worse[name] for name in F_ATT}
    logger.info("variance left: %s", ratios)
    return max(ratios.values())
