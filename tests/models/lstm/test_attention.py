"""Attention equals the oracle's: scores, context, gate, hypotheses, permutations."""

import keras
import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from tiny_captioner import MODES, TOLERANCE, A, B, D, L, arrays, run_in

from show_attend_tell.models.lstm.attention import (
    ExponentialProjection,
    attention_scores,
    context,
    exp_twice,
    gate,
)

W = 2


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def locations_first(a, scores):
    """Return alpha and z_hat of one batch in NumPy, from scores (B, L)."""
    alpha = np.array([oracle.softmax(row) for row in scores])
    return alpha, np.array(
        [oracle.context(*pair) for pair in zip(a, alpha, strict=True)]
    )


@pytest.mark.parametrize("mode", MODES)
def test_scores_are_those_of_the_mlp(rng, mode):
    projected, state, w_att = normal(rng, B, L, A), normal(rng, B, A), normal(rng, A)

    def compute(projected, state, w_att):
        return attention_scores(projected, state, w_att, ops.tanh)

    e = run_in(mode, compute, projected, state, w_att)
    expected = np.tanh(projected.astype(float) + state[:, None]) @ w_att.astype(float)
    np.testing.assert_allclose(e, expected, **TOLERANCE)


@pytest.mark.parametrize("mode", MODES)
def test_scores_from_exponentials_are_those_of_tanh_but_for_a_constant(rng, mode):
    projected, w_att = normal(rng, B, L, A), normal(rng, A)
    projected[0, 0] = np.linspace(-90, 90, A)  # exp of twice that overflows
    states = normal(rng, B, W, A)

    def compute(projected, states, w_att):
        exponential = ExponentialProjection(exp_twice(projected))
        return attention_scores(exponential, states, w_att, ops.tanh)

    e = run_in(mode, compute, projected, states, w_att)
    sums = projected.astype(float)[:, None] + states[:, :, None]  # (B, W, L, A)
    expected = np.tanh(sums) @ w_att.astype(float) - w_att.sum(dtype=float)
    np.testing.assert_allclose(e, expected, **TOLERANCE)


def test_the_activation_is_applied_to_the_sum(rng):
    projected, state, w_att = normal(rng, B, L, A), normal(rng, B, A), normal(rng, A)
    e = attention_scores(projected, state, w_att, keras.activations.relu)
    expected = np.maximum(projected + state[:, None], 0) @ w_att
    np.testing.assert_allclose(e, expected, **TOLERANCE)


def test_attention_depends_on_the_state(rng):
    projected, w_att = normal(rng, 1, L, A), normal(rng, A)
    alphas = [
        ops.softmax(attention_scores(projected, normal(rng, 1, A), w_att, ops.tanh))
        for _ in range(2)
    ]
    assert np.abs(np.subtract(*arrays(alphas))).max() > 1e-2


@pytest.mark.parametrize("mode", MODES)
def test_alpha_and_the_soft_phi_are_recomputed(rng, mode):
    a, e = normal(rng, B, L, D), normal(rng, B, L)

    def attend(a, e):
        alpha = ops.softmax(e, axis=-1)
        return alpha, context(a, alpha)

    expected = locations_first(a.astype(float), e.astype(float))
    for one, other in zip(run_in(mode, attend, a, e), expected, strict=True):
        np.testing.assert_allclose(one, other, **TOLERANCE)


def test_hypotheses_of_a_beam_equal_single_ones(rng):
    a, projected, w_att = normal(rng, B, L, D), normal(rng, B, L, A), normal(rng, A)
    states = normal(rng, B, W, A)
    e = attention_scores(projected, states, w_att, ops.tanh)
    z_hat = context(a, ops.softmax(e))
    assert e.shape == (B, W, L)
    assert z_hat.shape == (B, W, D)
    for w in range(W):
        alone = attention_scores(projected, states[:, w], w_att, ops.tanh)
        np.testing.assert_allclose(e[:, w], alone, **TOLERANCE)
        alone_too = context(a, ops.softmax(alone))
        np.testing.assert_allclose(z_hat[:, w], alone_too, **TOLERANCE)


@pytest.mark.parametrize("mode", MODES)
def test_the_gate_is_the_logistic_function(mode):
    logit = np.linspace(-8, 8, 9, dtype=np.float32)[:, None]
    expected = oracle.sigmoid(logit.astype(float))
    np.testing.assert_allclose(run_in(mode, gate, logit), expected, **TOLERANCE)


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.1, 1.0, 30.0]))
def test_alpha_sums_to_one_and_permuting_locations_permutes_it(seed, scale):
    rng = np.random.default_rng(seed)
    a, projected = normal(rng, B, L, D), scale * normal(rng, B, L, A)
    state, w_att = normal(rng, B, A), scale * normal(rng, A)
    order = rng.permutation(L)

    def attend(a, projected):
        alpha = ops.softmax(attention_scores(projected, state, w_att, ops.tanh))
        return arrays((alpha, context(a, alpha)))

    alpha, z_hat = attend(a, projected)
    permuted_alpha, permuted_z_hat = attend(a[:, order], projected[:, order])
    np.testing.assert_allclose(alpha.sum(1), 1, rtol=1e-5)
    assert (alpha >= 0).all()
    np.testing.assert_allclose(permuted_alpha, alpha[:, order], **TOLERANCE)
    np.testing.assert_allclose(permuted_z_hat, z_hat, **TOLERANCE)
