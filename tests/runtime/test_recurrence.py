"""A repeated step: written out and as a loop, with gradients, compiled or not."""

import keras
import numpy as np
import pytest
from keras import ops
from tiny_captioner import MODES, in_mode

from show_attend_tell.runtime import recurrence
from show_attend_tell.runtime.recurrence import scan

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
    monkeypatch.setattr(recurrence, "UNROLLED", most)
    start, inputs = rng.normal(size=(B, N)), rng.normal(size=(B, T, N))
    tensors = [ops.convert_to_tensor(x.astype("float32")) for x in (start, inputs)]
    last, h, x = in_mode(states, mode)(*tensors)
    theirs = expected(start, inputs)
    np.testing.assert_allclose(h, theirs, rtol=1e-4)
    np.testing.assert_allclose(last, theirs[:, -1], rtol=1e-4)
    np.testing.assert_allclose(x, inputs[:, :, 0], rtol=1e-5)
    slope = in_mode(gradient, mode)(*tensors)
    step = np.zeros_like(start)
    step[1, 2] = 1e-6
    change = expected(start + step, inputs) - expected(start - step, inputs)
    assert float(slope[1, 2]) == pytest.approx(change.sum() / 2e-6, rel=1e-3)


def gradient(start, inputs):
    """Return d (sum of all states) / d start."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.grad(lambda start: ops.sum(states(start, inputs)[1]))(start)
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(start)
        value = ops.sum(states(start, inputs)[1])
    return tape.gradient(value, start)
