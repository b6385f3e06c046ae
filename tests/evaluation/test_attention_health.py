import logging

import numpy as np
import pytest

from show_attend_tell.evaluation.attention_health import AttentionWatch, measure

L = 5


def one_hot(*locations):
    return np.eye(L, dtype=np.float32)[list(locations)]


def test_movement_is_the_variance_over_steps_relative_to_the_mean_square():
    still = np.tile(np.float32([0.5, 0.2, 0.1, 0.1, 0.1]), (4, 1))
    moving = one_hot(0, 1, 2, 3)
    assert measure([still])["attention_movement"] == pytest.approx(0, abs=1e-12)
    assert measure([moving])["attention_movement"] == pytest.approx(0.75)
    both = measure([still, moving])["attention_movement"]
    assert both == pytest.approx(0.375)


def test_captions_of_one_word_cannot_move_and_do_not_count():
    assert measure([one_hot(2)])["attention_movement"] == 1
    found = measure([one_hot(2), one_hot(0, 1)])["attention_movement"]
    assert found == pytest.approx(0.5)


def test_the_peak_is_the_largest_share_of_all_attention():
    assert measure([one_hot(3, 3), one_hot(3)])["attention_peak"] == 1
    assert measure([one_hot(3, 3), one_hot(0, 1)])["attention_peak"] == 0.5


@pytest.mark.parametrize(
    ("alphas", "message"),
    [
        ([one_hot(3, 3, 3), one_hot(3, 3)], "attention has collapsed: 100% of it"),
        ([one_hot(3, 3), one_hot(0, 0)], "attention has stopped moving: the variance"),
    ],
)
def test_dead_attention_is_warned_of_once(caplog, alphas, message):
    watch = AttentionWatch()
    with caplog.at_level(logging.WARNING, "show_attend_tell"):
        for _ in range(3):
            watch({"BLEU-4": 1.0, **measure(alphas)})
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(message)
    assert "\n" not in caplog.messages[0]


def test_attention_that_moves_is_not_warned_of(caplog):
    with caplog.at_level(logging.WARNING, "show_attend_tell"):
        AttentionWatch()(measure([one_hot(0, 1, 2), one_hot(3, 4)]))
    assert not caplog.messages
