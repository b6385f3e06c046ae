"""Attention from exponentials of the projections, and permuted locations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from random_weights import normal
from tiny_captioner import MODES, TOLERANCE, A, B, D, L, arrays, run_in

from show_attend_tell.models.lstm.attention import (
    ExponentialProjection,
    attention_scores,
    context,
    exp_twice,
)

W = 2


@pytest.mark.parametrize("mode", MODES)
def test_scores_from_exponentials_are_those_of_tanh_but_for_a_constant(rng, mode):
    projected, w_att = normal(rng, B, L, A), normal(rng, A)
    projected[0, 0] = np.linspace(-90, 90, A)  # exp of twice that overflows
    states = normal(rng, B, W, A)

    def compute(projected, states, w_att):
        exponential = ExponentialProjection(exp_twice(projected))
        return attention_scores(exponential, states, w_att)

    e = run_in(mode, compute, projected, states, w_att)
    sums = projected.astype(float)[:, None] + states[:, :, None]  # (B, W, L, A)
    expected = np.tanh(sums) @ w_att.astype(float) - w_att.sum(dtype=float)
    np.testing.assert_allclose(e, expected, **TOLERANCE)


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.1, 1.0, 30.0]))
def test_alpha_sums_to_one_and_permuting_locations_permutes_it(seed, scale):
    rng = np.random.default_rng(seed)
    a, projected = normal(rng, B, L, D), scale * normal(rng, B, L, A)
    state, w_att = normal(rng, B, A), scale * normal(rng, A)
    order = rng.permutation(L)

    def attend(a, projected):
        alpha = ops.softmax(attention_scores(projected, state, w_att))
        return arrays((alpha, context(a, alpha)))

    alpha, z_hat = attend(a, projected)
    permuted_alpha, permuted_z_hat = attend(a[:, order], projected[:, order])
    np.testing.assert_allclose(alpha.sum(1), 1, rtol=1e-5)
    assert (alpha >= 0).all()
    np.testing.assert_allclose(permuted_alpha, alpha[:, order], **TOLERANCE)
    np.testing.assert_allclose(permuted_z_hat, z_hat, **TOLERANCE)
