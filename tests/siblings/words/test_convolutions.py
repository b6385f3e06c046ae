"""Convolutions against NumPy loops, their parameters and their statistics."""

import keras
import numpy as np
import pytest
from keras import ops
from oracle import convolve

from show_attend_tell.siblings.words.convolutions import RecursiveConvolution

KINDS = ("plain", "recursive_tied", "recursive_untied", "recurrent")
EPSILON = 1e-3  # added to a variance


def expected_states(x, weights, kind, n, normalise=None):
    """h(0) .. h(n) of Sec. 3.1, from the weights by name."""
    w, feeds = (
        weights.get("kernel"),
        [weights.get(f"feedforward_{t}") for t in range(9)],
    )
    first = weights.get("bias_0", 0.0)
    later = weights.get("bias", first)
    normalise = normalise or (lambda total, t: total)

    def activate(total, t):
        return np.maximum(normalise(total + (first if t == 0 else later), t), 0)

    if kind == "recursive_tied":
        zeros = np.zeros((*x.shape[:3], w.shape[2] - x.shape[3]))
        states = [activate(convolve(np.concatenate([x, zeros], -1), w), 0)]
    else:
        states = [activate(convolve(x, feeds[0]), 0)]
    for t in range(1, n + 1):
        total = convolve(states[-1], w)
        if kind == "recurrent":
            v = feeds[0] if feeds[1] is None else feeds[t]
            total = total + convolve(x, v)
        states.append(activate(total, t))
    return states


def layer_of(kind, n, seed=0, inputs=2, outputs=3, **options):
    options = {"batch_norm": False, **options}
    layer = RecursiveConvolution(kind, inputs, outputs, n, seed=seed, **options)
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(0.4 * rng.standard_normal(weight.shape))
    return layer


def values_of(layer):
    return {w.name: np.asarray(w, np.float64) for w in layer.weights}


def picture(channels=2, seed=1, shape=(2, 5, 6)):
    return np.random.default_rng(seed).standard_normal((*shape, channels)).astype("f")


@pytest.mark.parametrize(
    ("kind", "n", "options"),
    [(kind, n, {}) for kind in KINDS for n in range(4)]
    + [("recurrent", 2, {"share_feedforward": False})],
)
def test_every_kind_equals_a_loop_over_pixels(kind, n, options):
    layer, x = layer_of(kind, n, **options), picture()
    expected = expected_states(x, values_of(layer), kind, layer.iterations)
    np.testing.assert_allclose(np.asarray(layer(x)), expected[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 4])
def test_the_number_of_parameters_does_not_depend_on_the_iterations(n):
    c, C = 2, 3
    expected = {
        "recursive_tied": 9 * C * C + C,
        "recursive_untied": 9 * c * C + C + 9 * C * C + C,
        "recurrent": 9 * c * C + 9 * C * C + C,
    }
    for kind, count in expected.items():
        assert layer_of(kind, n).count_params() == count, kind
    unshared = layer_of("recurrent", n, share_feedforward=False)
    assert unshared.count_params() == 9 * (n + 1) * c * C + 9 * C * C + C


@pytest.mark.parametrize("kind", KINDS)
def test_each_iteration_is_normalised_by_its_own_stored_statistics(kind):
    n = 0 if kind == "plain" else 2
    layer, x = layer_of(kind, n, batch_norm=True), picture()
    for variance in layer.variances:
        variance.assign(np.abs(np.asarray(variance)) + 0.5)
    weights = values_of(layer)

    def normalise(total, t):
        deviation = np.sqrt(weights[f"variance_{t}"] + EPSILON)
        total = (total - weights[f"mean_{t}"]) / deviation
        return weights[f"scale_{t}"] * total + weights[f"offset_{t}"]

    expected = expected_states(x, weights, kind, n, normalise)
    np.testing.assert_allclose(np.asarray(layer(x)), expected[-1], rtol=1e-4, atol=1e-4)


def test_training_normalises_by_the_batch_and_moves_the_statistics():
    layer, x = layer_of("recursive_untied", 2, batch_norm=True), picture()
    before, sums = values_of(layer), []

    def normalise(total, t):
        sums.append(total)
        mean, variance = total.mean((0, 1, 2)), total.var((0, 1, 2))
        total = (total - mean) / np.sqrt(variance + EPSILON)
        return before[f"scale_{t}"] * total + before[f"offset_{t}"]

    expected = expected_states(x, before, "recursive_untied", 2, normalise)
    found = np.asarray(layer(x, training=True))
    np.testing.assert_allclose(found, expected[-1], rtol=1e-3, atol=1e-4)
    after = values_of(layer)
    for t, total in enumerate(sums):
        mean = 0.9 * before[f"mean_{t}"] + 0.1 * total.mean((0, 1, 2))
        variance = total.var((0, 1, 2), ddof=1)
        variance = 0.9 * before[f"variance_{t}"] + 0.1 * variance
        np.testing.assert_allclose(after[f"mean_{t}"], mean, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(after[f"variance_{t}"], variance, rtol=1e-3)
    means = np.stack([after[f"mean_{t}"] for t in range(3)])
    assert np.ptp(means, axis=0).min() > 1e-3


def test_bfloat16_changes_the_products_and_not_the_statistics():
    layer, x = layer_of("recurrent", 1, batch_norm=True), picture()
    found = layer(ops.cast(x, "bfloat16"), training=True)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    assert layer.means[0].dtype == "float32"
