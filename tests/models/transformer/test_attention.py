"""Attention in heads, positions and one layer of the Transformer equal the oracle's."""

import itertools

import keras
import numpy as np
import pytest
import tiny_transformer as tiny
import transformer_oracle as oracle
from keras import ops
from tiny_captioner import MODES, TOLERANCE, B, L, T, run_in
from tiny_transformer import F, H, d

from show_attend_tell.models.transformer.attention import (
    HeadAttention,
    causal_bias,
    grid_positions,
    sinusoids,
)
from show_attend_tell.models.transformer.layer import (
    TransformerLayer,
    WordKeys,
)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def randomise(layer, rng):
    """Set every weight to random values; return them in float64 by path."""
    for weight in layer.weights:
        weight.assign(normal(rng, *weight.shape))
    return {w.path: np.asarray(w, np.float64) for w in layer.weights}


def heads_of(rng, heads=H, width=d):
    layer = HeadAttention(width, heads, itertools.count(1), name="any")
    return layer, randomise(layer, rng)


def attend(layer, x, y, bias=None):
    """Return MultiHead(x, y) and the weights of the heads."""
    keys, values = layer.head_keys(layer.keys(y)), layer.head_values(layer.values(y))
    joined, weights = layer.attend(layer.queries(x), keys, values, bias)
    return layer.output(joined), weights


@pytest.mark.parametrize("width", [4, 10])
def test_positions_are_the_papers_sines(width):
    found = sinusoids(np.arange(40), width)
    expected = [oracle.positional_encoding(p, width) for p in range(40)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_position_k_later_is_a_rotation():
    width, k = 8, 5
    p = sinusoids(np.arange(30), width).astype(float)
    for i in range(width // 2):
        angle = k / 10000 ** (2 * i / width)
        turn = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        pair = p[:, 2 * i : 2 * i + 2]
        np.testing.assert_allclose(pair[k:], pair[:-k] @ np.transpose(turn), atol=1e-5)


def test_locations_have_the_sines_of_their_row_and_column():
    found = grid_positions((2, 3), 8)
    assert found.shape == (6, 8)
    for i, row in enumerate(found):
        parts = [oracle.positional_encoding(x, 4) for x in divmod(i, 3)]
        np.testing.assert_allclose(row, np.concatenate(parts), atol=1e-6)


@pytest.mark.parametrize(
    ("heads", "mode"), [(1, "eager"), (4, "eager"), *((2, mode) for mode in MODES)]
)
def test_attention_in_heads_is_the_oracles(rng, heads, mode):
    layer, p = heads_of(rng, heads)
    x, y, bias = normal(rng, B, T, d), normal(rng, B, L, d), normal(rng, B, 1, T, L)
    given = lambda x, y, bias: attend(layer, x, y, bias)  # noqa: E731
    found, weights = run_in(mode, given, x, y, bias)
    for b, t in np.ndindex(B, T):
        row, rows = x[b, t].astype(float), y[b].astype(float)
        value, expected = oracle.multi_head(p, "any", row, rows, heads, bias[b, 0, t])
        np.testing.assert_allclose(found[b, t], value, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(weights[b, :, t], expected, **TOLERANCE)


def test_attention_in_heads_is_that_of_keras_with_the_same_weights(rng):
    layer, p = heads_of(rng)
    x, y = normal(rng, B, T, d), normal(rng, B, L, d)
    theirs = keras.layers.MultiHeadAttention(H, d // H)
    theirs.build(x.shape, y.shape, y.shape)
    split = {"q": (d, H, d // H), "k": (d, H, d // H), "v": (d, H, d // H)}
    values = []
    for part, shape in {**split, "o": (H, d // H, d)}.items():
        values.append(p[f"any/w_{part}"].reshape(shape))
        bias = p.get(f"any/b_{part}", np.zeros(d))
        values.append(bias.reshape(shape[1:] if part != "o" else (d,)))
    order = dict(zip("qkvo", zip(values[::2], values[1::2], strict=True), strict=True))
    names = {"query": "q", "key": "k", "value": "v", "attention_output": "o"}
    for weight in theirs.weights:
        part, _, kind = weight.path.rpartition("/")
        kernel, bias = order[names[part.rpartition("/")[2]]]
        weight.assign(kernel if kind == "kernel" else bias)
    expected, scores = theirs(x, y, return_attention_scores=True)
    found, weights = attend(layer, x, y)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weights, scores, **TOLERANCE)


def test_one_head_without_projections_is_plain_softmax_attention(rng):
    layer, _ = heads_of(rng, heads=1)
    for part in "qkvo":
        getattr(layer, f"w_{part}").assign(np.eye(d))
    for bias in (layer.b_q, layer.b_v, layer.b_o):
        bias.assign(np.zeros(d))
    x, y = normal(rng, 1, T, d), normal(rng, 1, L, d)
    found, _ = attend(layer, x, y)
    for t in range(T):
        expected, _ = oracle.attention(x[0, t], y[0], y[0])
        np.testing.assert_allclose(found[0, t], expected, **TOLERANCE)


@pytest.mark.parametrize("mode", ["eager", pytest.param("jit", marks=pytest.mark.slow)])
def test_attention_to_unprojected_locations_is_the_same(rng, mode):
    layer, _ = heads_of(rng)
    x, m, bias = normal(rng, B, T, d), normal(rng, B, L, d), normal(rng, B, 1, T, L)

    def both(x, m, bias):
        q = layer.queries(x)
        keys, values = (
            layer.head_keys(layer.keys(m)),
            layer.head_values(layer.values(m)),
        )
        return [
            *layer.attend(q, keys, values, bias),
            *layer.attend_unprojected(q, m, bias),
        ]

    joined, weights, *others = run_in(mode, both, x, m, bias)
    np.testing.assert_allclose(others[0], joined, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(others[1], weights, **TOLERANCE)


def test_heads_are_single_heads_side_by_side(rng):
    layer, _ = heads_of(rng)
    q, y = normal(rng, B, T, d), normal(rng, B, L, d)
    joined, weights = layer.attend(q, layer.head_keys(y), layer.head_values(y))
    alone = HeadAttention(d // H, 1, itertools.count(), name="alone")
    for j in range(H):
        own = slice(j * d // H, (j + 1) * d // H)
        part, weight = alone.attend(
            q[..., own], alone.head_keys(y[..., own]), alone.head_values(y[..., own])
        )
        np.testing.assert_allclose(joined[..., own], part, **TOLERANCE)
        np.testing.assert_allclose(weights[:, j], weight[:, 0], **TOLERANCE)


def test_equal_keys_get_equal_weights_that_sum_to_one(rng):
    layer, _ = heads_of(rng)
    x, row = normal(rng, B, T, d), normal(rng, B, 1, d)
    _, weights = attend(layer, x, np.repeat(row, L, axis=1))
    np.testing.assert_allclose(weights, 1 / L, rtol=1e-6)
    _, weights = attend(layer, x, normal(rng, B, L, d))
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, rtol=1e-6)


def test_the_causal_bias_masks_later_words_exactly():
    bias = causal_bias(3)
    np.testing.assert_array_equal(bias == 0, np.tri(3, dtype=bool))
    weights = np.asarray(ops.softmax(bias + 5.0))
    np.testing.assert_array_equal(weights[0], [1, 0, 0])


@pytest.mark.parametrize("mode", ["eager", pytest.param("jit", marks=pytest.mark.slow)])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_one_layer_is_the_oracles(rng, norm, mode):
    settings = tiny.settings(norm=norm)
    layer = TransformerLayer(settings, itertools.count(1), name="one")
    p = randomise(layer, rng)
    assert p["one/w_1"].shape == (d, F)
    x, memory = normal(rng, B, T, d), normal(rng, B, L, d)

    def run(x, memory):
        y = layer.read_words(x, causal_bias(T))
        y, weights = layer.read_photo(y, layer.photo_keys(memory))
        return layer.feed_forward(y), weights

    found, weights = run_in(mode, run, x, memory)
    for b in range(B):
        given = p, "one", x[b].astype(float), settings, memory[b].astype(float)
        expected, alpha = oracle.layer(*given)
        np.testing.assert_allclose(found[b], expected, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(
            weights[b], alpha.swapaxes(0, 1), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_words_written_one_by_one_are_words_read_together(rng, norm):
    layer = TransformerLayer(tiny.settings(norm=norm), itertools.count(1), name="one")
    randomise(layer, rng)
    x, W = normal(rng, B, 2, T, d), 2
    cache = WordKeys(*np.zeros((2, B, W, T + 1, d), "f4"))
    for t in range(T):
        row, cache = layer.write_word(x[:, :, t], cache, np.full((B, W), t, "i4"))
        for w in range(W):
            whole = layer.read_words(x[:, w, : t + 1], causal_bias(t + 1))
            np.testing.assert_allclose(row[:, w], whole[:, -1], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(cache.keys[:, :, T], 0)  # not written yet
