"""Normalisation of a batch against NumPy, and its two ways against each other."""

import numpy as np
import pytest
from keras import ops

from show_attend_tell.runtime.batch_normalisation import (
    EPSILON,
    normalise_batch,
    normalise_by,
    normalise_by_moments,
)

RNG = np.random.default_rng(0)
X = (3 + 2 * RNG.standard_normal((4, 5, 6, 3))).astype("f")
SCALE, OFFSET = (RNG.standard_normal(3).astype("f") for _ in range(2))


@pytest.mark.parametrize("function", [normalise_batch, normalise_by_moments])
def test_channels_are_normalised_by_their_moments_in_the_batch(function):
    found = function(*map(ops.convert_to_tensor, (X, SCALE, OFFSET)))
    mean, variance = X.mean((0, 1, 2)), X.var((0, 1, 2))
    wanted = SCALE * (X - mean) / np.sqrt(variance + EPSILON) + OFFSET
    np.testing.assert_allclose(found[0], wanted, atol=1e-4)
    np.testing.assert_allclose(found[1], mean, rtol=1e-4)
    np.testing.assert_allclose(found[2], X.var((0, 1, 2), ddof=1), rtol=1e-4)


def test_a_given_mean_and_variance_are_used():
    mean, variance = RNG.standard_normal(3), RNG.random(3)
    found = normalise_by(X, SCALE, OFFSET, mean.astype("f"), variance.astype("f"))
    wanted = SCALE * (X - mean) / np.sqrt(variance + EPSILON) + OFFSET
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
