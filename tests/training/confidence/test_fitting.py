"""Logistic regression, the area under the ROC curve, and reliability."""

import numpy as np
import pytest

from show_attend_tell.training.confidence.fitting import (
    fit_logistic,
    rank_auc,
    reliability,
    sigmoid,
)

optimize = pytest.importorskip("scipy.optimize")


def made_up(N=80, F=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, F))
    y = (rng.random(N) < sigmoid(x @ [1.0, -2.0, 0.0] + 0.5)).astype(float)
    return x, y, rng.uniform(0.1, 2, N)


def test_the_fit_minimises_the_penalised_cross_entropy():
    x, y, s = made_up()
    ridge = 0.02

    def loss(w):
        z = x @ w[:-1] + w[-1]
        terms = np.logaddexp(0, z) - y * z
        return (s * terms).sum() / s.sum() + ridge / 2 * (w[:-1] @ w[:-1])

    expected = optimize.minimize(loss, np.zeros(4), method="BFGS", tol=1e-10).x
    np.testing.assert_allclose(fit_logistic(x, y, s, ridge), expected, atol=1e-4)


def test_the_fit_of_separable_groups_is_finite():
    x = np.concatenate([np.full((9, 2), 3.0), np.full((9, 2), -3.0)])
    y = np.repeat([1.0, 0.0], 9)
    w = fit_logistic(x, y, np.ones(18), 0.01)
    assert np.isfinite(w).all()
    assert w[0] > 0


def test_the_area_is_the_share_of_ordered_pairs():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 9, 40) / 4, rng.integers(0, 6, 30) / 4
    pairs = [(p > n) + 0.5 * (p == n) for p in a for n in b]
    assert rank_auc(a, b) == pytest.approx(np.mean(pairs))


def test_reliability_compares_weighted_means_in_bins():
    p, y = np.array([0.05, 0.06, 0.95, 1.0]), np.array([0.0, 1.0, 1.0, 1.0])
    table = reliability(p, y, np.array([3.0, 1.0, 1.0, 1.0]))
    np.testing.assert_allclose(table, [(0.0525, 0.25, 2), (0.975, 1.0, 2)])


def test_the_sigmoid_of_large_numbers_is_zero_or_one():
    np.testing.assert_allclose(sigmoid(np.array([-1e4, 0, 1e4])), [0, 0.5, 1])
