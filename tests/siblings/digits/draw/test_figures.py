"""Figures of what DRAW draws."""

import numpy as np
from made_up_digits import digits

from show_attend_tell.siblings.digits.draw.figures import (
    WINDOW,
    WindowBox,
    nearest_figure,
    tile,
)


def test_the_frame_of_a_window_larger_than_the_picture_is_on_the_border():
    box = WindowBox(np.array([-30.0, -30.0, 40.0, 5.0]), 0.1)
    picture = np.asarray(tile(np.zeros((1, 8, 8)), 1, 2, [box]))[1:-1, 1:-1]
    framed = (picture == WINDOW).all(axis=-1)  # (16, 16)
    expected = np.zeros((16, 16), bool)
    expected[:11] = True
    expected[1:10, 1:-1] = False
    np.testing.assert_array_equal(framed, expected)


def test_the_nearest_digit_is_that_of_least_distance():
    training_digits = digits(20).images
    drawn = training_digits[[7, 3]].astype("float32") / 255 * 0.9
    pixels = np.asarray(nearest_figure(drawn, training_digits, 1))[:, :, 0]
    np.testing.assert_array_equal(pixels[30:58, 1:29], training_digits[7])
    np.testing.assert_array_equal(pixels[30:58, 30:58], training_digits[3])
