"""Numbers of how attention spreads, for even, peaked and unequal captions."""

import numpy as np
import pytest

from show_attend_tell.decoding import Hypotheses
from show_attend_tell.evaluation.attention_statistics import entropy, of_captions


def hypotheses(alpha, beta, lengths) -> Hypotheses:
    """Return Hypotheses of which only these fields, (N, 1, ...), are filled."""
    values = {"alpha": alpha, "beta": beta, "lengths": lengths}
    blank = {name: None for name in Hypotheses._fields}
    return Hypotheses(**blank | {k: np.asarray(v)[:, None] for k, v in values.items()})


def test_entropy_is_one_when_even_and_zero_on_one_location():
    np.testing.assert_allclose(entropy(np.full((2, 9), 1 / 9)), 1)
    np.testing.assert_allclose(entropy(np.eye(9)), 0, atol=1e-12)
    assert entropy(np.array([0.5, 0.5, 0, 0])) == pytest.approx(0.5)


def test_words_behind_the_length_count_for_nothing():
    even = np.full(4, 0.25)
    alpha = [[np.eye(4)[0], even, 0 * even], [even, 0 * even, 0 * even]]
    beta = [[0.1, 0.2, 0.0], [0.3, 0.0, 0.0]]
    found = of_captions(hypotheses(alpha, beta, [2, 1]))
    np.testing.assert_allclose(found["entropy"], [0, 1, 1], atol=1e-12)
    np.testing.assert_allclose(found["beta"], [0.1, 0.2, 0.3])
    first = np.array([1.25, 0.25, 0.25, 0.25]) * 4 / 2
    np.testing.assert_allclose(found["coverage"], [*first, 1, 1, 1, 1])


def test_coverage_is_one_on_average(rng):
    alpha = rng.dirichlet(np.ones(6), (5, 3))
    found = of_captions(hypotheses(alpha, np.ones((5, 3)), [3] * 5))
    assert found["coverage"].mean() == pytest.approx(1)
