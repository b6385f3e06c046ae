"""Positions and layers of the Transformer in NumPy, one entry after the other."""

import numpy as np
import pytest

from show_attend_tell.reference.transformer import attention, normalise, sinusoids


@pytest.mark.parametrize("width", [4, 10])
def test_positions_are_the_papers_sines(width):
    for p, row in enumerate(sinusoids(range(40), width)):
        for i in range(width // 2):
            angle = p / 10000 ** (2 * i / width)
            pair = np.sin(angle), np.cos(angle)
            np.testing.assert_allclose(row[2 * i : 2 * i + 2], pair, atol=1e-6)


def test_attention_is_a_mean_of_the_values_weighted_by_similarity(rng):
    q, keys, values = (rng.standard_normal((rows, 4)) for rows in (2, 5, 5))
    found, weights = attention(q, keys, values)
    for r in range(2):
        e = np.exp([q[r] @ key / 2 for key in keys])
        np.testing.assert_allclose(weights[r], e / e.sum())
        mean = sum(w * v for w, v in zip(e / e.sum(), values, strict=True))
        np.testing.assert_allclose(found[r], mean)


def test_a_normalised_row_has_mean_0_and_deviation_1(rng):
    p = {"any/gamma": np.full(6, 2.0), "any/beta": np.full(6, 3.0)}
    rows = normalise(p, "any", 10 + 7 * rng.standard_normal((4, 6)))
    np.testing.assert_allclose(rows.mean(axis=1), 3)
    np.testing.assert_allclose(rows.std(axis=1), 2, rtol=1e-5)
