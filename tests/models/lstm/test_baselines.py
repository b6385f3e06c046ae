"""Baselines and rewards of REINFORCE, against NumPy."""

import numpy as np
import pytest

from show_attend_tell.models.lstm.baselines import (
    mean_of_others,
    moved_average,
    reward_to_go,
)


@pytest.mark.parametrize("shape", [(6,), (6, 4), (6, 2, 3)])
@pytest.mark.parametrize("samples", [2, 3, 6])
def test_the_baseline_of_a_sample_is_the_mean_of_the_others_of_its_group(
    rng, shape, samples
):
    values = rng.standard_normal(shape).astype("float32")
    found = np.asarray(mean_of_others(values, samples))
    for row in range(6):
        first = row - row % samples
        others = [k for k in range(first, first + samples) if k != row]
        np.testing.assert_allclose(found[row], values[others].mean(0), atol=1e-6)


def test_the_reward_to_go_counts_no_earlier_reward(rng):
    rewards = rng.standard_normal((3, 5)).astype("float32")
    found = np.asarray(reward_to_go(rewards))
    expected = [[rewards[n, t:].sum() for t in range(5)] for n in range(3)]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_moving_average_moves_by_one_share_and_rests_without_a_reward():
    assert float(moved_average(2.0, 4.0, 0.75)) == pytest.approx(2.5)
    assert float(moved_average(2.0, 4.0, 0.75, present=False)) == pytest.approx(2.0)
