"""Test position, size and colour of drawn shapes."""

import colorsys

import numpy as np
import pytest

from data_prep.scenes.drawing import COLOURS, SHAPES, Shape, draw_shapes


def drawn(shape: Shape, side: int = 96, seed: int = 0):
    image, (box,) = draw_shapes([shape], side, np.random.default_rng(seed))
    return np.asarray(image), box


@pytest.mark.parametrize("kind", SHAPES)
def test_the_box_is_around_the_centre_and_no_wider_than_the_size(kind):
    _, (x0, y0, x1, y1) = drawn(Shape("red", kind, 0.5, 0.25, 0.4))
    assert 0.6 * 0.4 * 96 < max(x1 - x0, y1 - y0) <= 0.4 * 96 + 2
    assert x0 < 48 < x1
    assert y0 < 24 < y1


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("kind", SHAPES)
def test_the_centre_has_the_named_colour(colour, kind):
    pixels, _ = drawn(Shape(colour, kind, 0.5, 0.5, 0.4))
    hue = colorsys.rgb_to_hsv(*pixels[44:52, 44:52].mean((0, 1)) / 255)[0]
    distances = {
        name: min(abs(hue - value), 1 - abs(hue - value))
        for name, value in COLOURS.items()
    }
    assert min(distances, key=distances.get) == colour


def test_pixels_outside_the_box_are_background():
    shape = Shape("green", "star", 0.5, 0.5, 0.4)
    pixels, (x0, y0, x1, y1) = drawn(shape)
    colourful = np.ptp(pixels.astype(float), axis=2) > 0.5 * 255 * 0.7
    colourful[y0:y1, x0:x1] = False
    assert not colourful.any()


@pytest.mark.parametrize("seed", range(12))
def test_backgrounds_are_textured_and_nearly_grey(seed):
    image, boxes = draw_shapes([], 64, np.random.default_rng(seed))
    pixels = np.asarray(image).astype(float)
    assert boxes == []
    assert pixels.mean(2).std() > 5
    assert np.ptp(pixels.mean((0, 1))) < 60
