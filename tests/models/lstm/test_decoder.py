"""One step of the decoder and its parts equal the oracle's; initial weights."""

import numpy as np
import pytest
import tiny_captioner as tiny
from keras import ops
from nightly import others_nightly
from random_weights import normal
from tiny_captioner import MODES, TOLERANCE, B, D, K, L, arrays, m, n, run_in

from show_attend_tell.models.lstm.cell import OrthogonalGates
from show_attend_tell.models.lstm.decoder import LstmDecoder
from show_attend_tell.reference import lstm


def make(rng, **changes):
    """Return a tiny decoder of random weights, and these for the oracle."""
    model = tiny.build(rng, **changes)
    return model.decoder, tiny.weights(model)


def test_dropout_of_the_deep_output_is_on_h_and_on_the_tanh(rng):
    decoder, p = make(rng)
    embedded, h, z_hat = (normal(rng, B, width) for width in (m, n, D))
    seen = []
    decoder.readout(
        embedded,
        ops.convert_to_tensor(h),
        z_hat,
        lambda value: (seen.append(arrays(value)), value)[1],
    )
    hidden = h @ p["l_h"] + p["l_b"] + embedded + z_hat @ p["l_z"]
    np.testing.assert_allclose(seen[0], h, **TOLERANCE)
    np.testing.assert_allclose(seen[1], np.tanh(hidden), **TOLERANCE)
    assert len(seen) == 2


@pytest.mark.parametrize("mode", others_nightly(MODES, kept=("eager",)))
@pytest.mark.parametrize("selector", [True, False])
def test_one_step_is_the_oracles_and_the_same_for_a_beam(rng, selector, mode):
    decoder, p = make(rng, selector=selector)
    a = normal(rng, B, L, D)
    words = rng.integers(4, K, (B, 2))
    h, c = normal(rng, B, 2, n), normal(rng, B, 2, n)

    def step(a, words, h, c):
        gates = decoder.word_gates(decoder.embed(words))
        memory = decoder.memory(a)._replace(kernel=decoder.state_kernel())
        h, c, attention = decoder.step(gates, h, c, memory)
        return h, c, *attention

    beam = run_in(mode, step, a, words, h, c)
    alone = run_in(mode, step, a, words[:, 0], h[:, 0], c[:, 0])
    for found, expected in zip(beam, alone, strict=True):
        np.testing.assert_allclose(found[:, 0], expected, **TOLERANCE)
    for b in range(B):
        photo, h_b = a[b].astype(float), h[b, 1].astype(float)
        photo = lstm.read_photo(p, decoder.settings, photo)
        z_hat, alpha, _, beta = lstm.attend(p, decoder.settings, photo, h_b)
        embedded = p["embedding"][words[b, 1]]
        new_h, new_c = lstm.lstm(p, embedded, h_b, c[b, 1].astype(float), z_hat)
        expected = (new_h, new_c, z_hat, alpha, alpha, beta[0])
        for found, value in zip(beam, expected, strict=True):
            np.testing.assert_allclose(found[b, 1], value, **TOLERANCE)


def test_each_gate_starts_from_its_own_orthogonal_matrix():
    matrix = arrays(OrthogonalGates(seed=3)((n, 4 * n)))
    gates = np.split(matrix, 4, axis=1)
    for gate in gates:
        np.testing.assert_allclose(gate.T @ gate, np.eye(n), atol=1e-5)
    assert np.abs(gates[0] - gates[1]).max() > 1e-2
    again = OrthogonalGates.from_config(OrthogonalGates(seed=3).get_config())
    np.testing.assert_array_equal(arrays(again((n, 4 * n))), matrix)


def test_weights_start_as_the_authors_did():
    wide = tiny.settings(embedding_width=64, lstm_width=32, attention_width=48)
    for weight in LstmDecoder(wide, 200, annotation_width=64, seed=1).weights:
        value = np.asarray(weight)
        if value.ndim == 1:
            np.testing.assert_array_equal(value, 0)
        elif weight.name != "lstm_h":
            bounds = (0.0045, 0.016) if value.size < 100 else (0.009, 0.011)
            assert bounds[0] < value.std() < bounds[1], weight.name


def test_no_two_matrices_are_equal_and_the_seed_determines_them():
    def start(seed, initializer="normal"):
        chosen = tiny.settings(initializer=initializer)
        return LstmDecoder(chosen, vocabulary_size=K, annotation_width=D, seed=seed)

    first, again, other = start(1), start(1), start(2)
    for a, b, c in zip(first.weights, again.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)
        if len(a.shape) == 2:
            assert np.abs(np.asarray(a) - np.asarray(c)).max() > 0
    assert np.abs(np.asarray(first.init["h"][0][0] - first.init["c"][0][0])).max() > 0
    glorot = np.asarray(start(1, "glorot").l_o)
    assert np.abs(glorot).max() <= np.sqrt(6 / (m + K))
    assert np.abs(glorot).max() > 0.1
