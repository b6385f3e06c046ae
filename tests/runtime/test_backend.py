"""A repeated step and the normalisation of a batch, on any backend."""

import numpy as np
import pytest
from keras import ops
from tiny_captioner import MODES, gradient, in_mode

from show_attend_tell.runtime import backend
from show_attend_tell.runtime.backend import (
    EPSILON,
    normalise_batch,
    normalise_by,
    normalise_by_moments,
    scan,
)

B, T, N = 2, 4, 3


def expected(start, inputs):
    """Return the states of h_t = tanh(2 h_{t-1} + x_t), (B, T, N)."""
    h, states = start, []
    for t in range(T):
        h = np.tanh(2 * h + inputs[:, t])
        states.append(h)
    return np.stack(states, axis=1)


def states(start, inputs):
    def step(carry, x):
        (h,) = carry
        h = ops.tanh(2 * h + x)
        return (h,), {"h": h, "x": x[:, 0]}

    (last,), outputs = scan(step, (start,), inputs, T)
    return last, outputs["h"], outputs["x"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("most", [T, T - 1], ids=["written out", "a loop"])
def test_steps_and_their_gradients_equal_the_equations(rng, monkeypatch, most, mode):
    monkeypatch.setattr(backend, "UNROLLED", most)
    start, inputs = rng.normal(size=(B, N)), rng.normal(size=(B, T, N))
    tensors = [ops.convert_to_tensor(x.astype("float32")) for x in (start, inputs)]
    last, h, x = in_mode(states, mode)(*tensors)
    theirs = expected(start, inputs)
    np.testing.assert_allclose(h, theirs, rtol=1e-4)
    np.testing.assert_allclose(last, theirs[:, -1], rtol=1e-4)
    np.testing.assert_allclose(x, inputs[:, :, 0], rtol=1e-5)

    def slope_of(start, inputs):  # of the sum of all states
        return gradient(lambda start: ops.sum(states(start, inputs)[1]), start)

    slope = in_mode(slope_of, mode)(*tensors)
    step = np.zeros_like(start)
    step[1, 2] = 1e-6
    change = expected(start + step, inputs) - expected(start - step, inputs)
    assert float(slope[1, 2]) == pytest.approx(change.sum() / 2e-6, rel=1e-3)


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
