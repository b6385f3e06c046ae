"""Attention in heads and positions of words equal the oracle's."""

import itertools

import numpy as np
import pytest
from random_weights import normal
from tiny_captioner import MODES, TOLERANCE, B, L, T, run_in
from tiny_transformer import H, d

from show_attend_tell.models.transformer.attention import HeadAttention
from show_attend_tell.reference import transformer


def heads_of(rng, heads=H):
    """Return a layer of random weights, and these in float64 by path."""
    layer = HeadAttention(d, heads, itertools.count(1), name="any")
    for weight in layer.weights:
        weight.assign(normal(rng, *weight.shape))
    return layer, {w.path: np.asarray(w, np.float64) for w in layer.weights}


def attend(layer, x, y, bias=None):
    """Return the joined heads before the output, and the weights of the heads."""
    keys, values = layer.head_keys(layer.keys(y)), layer.head_values(layer.values(y))
    return layer.attend(layer.queries(x), keys, values, bias)


@pytest.mark.parametrize(
    ("heads", "mode"), [(1, "eager"), (4, "eager"), *((2, mode) for mode in MODES)]
)
def test_attention_in_heads_is_the_oracles(rng, heads, mode):
    layer, p = heads_of(rng, heads)
    x, y, bias = normal(rng, B, T, d), normal(rng, B, L, d), normal(rng, B, 1, T, L)

    def multi_head(x, y, bias):
        joined, weights = attend(layer, x, y, bias)
        return layer.output(joined), weights

    found, weights = run_in(mode, multi_head, x, y, bias)
    x, y = x.astype(float), y.astype(float)
    source = transformer.keys_of(p, "any", y, heads)
    exact, expected = transformer.multi_head(p, "any", x, source, bias)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weights, expected, **TOLERANCE)


@pytest.mark.parametrize("mode", ["eager", pytest.param("jit", marks=pytest.mark.slow)])
def test_attention_to_unprojected_locations_is_the_same(rng, mode):
    layer, _ = heads_of(rng)
    x, m, bias = normal(rng, B, T, d), normal(rng, B, L, d), normal(rng, B, 1, T, L)

    def both(x, m, bias):
        unprojected = layer.attend_unprojected(layer.queries(x), m, bias)
        return *attend(layer, x, m, bias), *unprojected

    joined, weights, *others = run_in(mode, both, x, m, bias)
    np.testing.assert_allclose(others[0], joined, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(others[1], weights, **TOLERANCE)
