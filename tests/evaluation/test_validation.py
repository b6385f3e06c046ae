"""Movement, peak, entropy and coverage of attention, and warnings about it."""

import numpy as np
import pytest

from show_attend_tell.evaluation.validation import (
    attention_entropy,
    attention_statistics,
    measure_attention,
)
from show_attend_tell.reference.hypotheses import Hypotheses

L = 5


def one_hot(*locations):
    return np.eye(L, dtype=np.float32)[list(locations)]


def test_movement_is_the_variance_over_steps_relative_to_the_mean_square():
    still = np.tile(np.float32([0.5, 0.2, 0.1, 0.1, 0.1]), (4, 1))
    moving = one_hot(0, 1, 2, 3)
    found = [measure_attention(a)["attention_movement"] for a in ([still], [moving])]
    assert found == pytest.approx([0, 0.75], abs=1e-12)
    both = measure_attention([still, moving])["attention_movement"]
    assert both == pytest.approx(0.375)


def test_captions_of_one_word_are_ignored_by_movement():
    assert measure_attention([one_hot(2)])["attention_movement"] == 1
    found = measure_attention([one_hot(2), one_hot(0, 1)])["attention_movement"]
    assert found == pytest.approx(0.5)


def test_the_peak_is_the_largest_share_of_all_attention():
    assert measure_attention([one_hot(3, 3), one_hot(3)])["attention_peak"] == 1
    assert measure_attention([one_hot(3, 3), one_hot(0, 1)])["attention_peak"] == 0.5


def test_entropy_is_one_when_uniform_and_zero_on_one_location():
    np.testing.assert_allclose(attention_entropy(np.full((2, 9), 1 / 9)), 1)
    np.testing.assert_allclose(attention_entropy(np.eye(9)), 0, atol=1e-12)
    assert attention_entropy(np.array([0.5, 0.5, 0, 0])) == pytest.approx(0.5)


def test_steps_after_the_last_word_are_ignored():
    even = np.full(4, 0.25)
    alpha = [[np.eye(4)[0], even, 0 * even], [even, 0 * even, 0 * even]]
    beta = [[0.1, 0.2, 0.0], [0.3, 0.0, 0.0]]
    values = {"alpha": alpha, "beta": beta, "lengths": [2, 1]}
    values = {name: np.asarray(value)[:, None] for name, value in values.items()}
    blank = dict.fromkeys(Hypotheses._fields)
    found = attention_statistics(Hypotheses(**blank | values))
    np.testing.assert_allclose(found["entropy"], [0, 1, 1], atol=1e-12)
    np.testing.assert_allclose(found["beta"], [0.1, 0.2, 0.3])
    first = np.array([1.25, 0.25, 0.25, 0.25]) * 4 / 2
    np.testing.assert_allclose(found["coverage"], [*first, 1, 1, 1, 1])
