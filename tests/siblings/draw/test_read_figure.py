"""Figures of windows that read: their boxes, their path, and what they read."""

import numpy as np
import pytest
import tiny_draw as tiny
from matplotlib.patches import Rectangle

from show_attend_tell.config.draw import DrawReaderSettings
from show_attend_tell.siblings.draw.classifier import WindowClassifier
from show_attend_tell.siblings.draw.read_figure import read_glimpses, window_figure

T, N, SIDE = 3, 3, 12


@pytest.fixture
def model(rng):
    built = WindowClassifier(DrawReaderSettings(steps=T, read=N, width=6), SIDE)
    for weight in built.trainable_weights:
        weight.assign(0.4 * rng.standard_normal(weight.shape))
    return built


@pytest.fixture
def images(rng):
    return rng.integers(0, 256, (2, SIDE, SIDE)).astype(np.uint8)


def test_boxes_and_views_are_those_of_the_equations(model, images):
    found = read_glimpses(images, model)
    parameters = np.asarray(model(images.astype("float32") / 255)["read"], float)
    for n in range(2):
        for t in range(T):
            across, down, _, log_stride, _ = own = parameters[n, t]
            F_y, F_x, _ = tiny.window(own, N, SIDE, SIDE)
            view = F_y @ (images[n] / 255) @ F_x.T
            np.testing.assert_allclose(found.views[n, t], view, atol=1e-4)
            # Pixel 1 is from 0 to 1, so its centre is half a pixel to the right of 0.
            x, y = ((SIDE + 1) / 2 * (g + 1) - 0.5 for g in (across, down))
            reach = (SIDE - 1) / 2 * np.exp(log_stride)
            expected = [x - reach, y - reach, x + reach, y + reach]
            np.testing.assert_allclose(found.boxes[n, t], expected, rtol=1e-4)
            np.testing.assert_allclose(found.centres[n, t], [x, y], rtol=1e-4)
    assert 0 <= found.views.min() <= found.views.max() <= 1


def test_the_figure_has_a_row_for_each_picture_and_a_panel_for_each_glimpse(
    model, images
):
    figure = window_figure(images, model, np.array([3, 7]))
    assert len(figure.axes) == 2 * (1 + T)
    boxes = [p for p in figure.axes[0].patches if isinstance(p, Rectangle)]
    assert len(boxes) == T
    assert len(figure.axes[0].lines[0].get_xdata()) == T
    assert [a.get_ylabel() for a in figure.axes[:: 1 + T]] == ["3", "7"]
    partly = window_figure(images, model, np.array([3, 7]), shown=1)
    assert [len(panel.images) for panel in partly.axes[1 : 1 + T]] == [1, 0, 0]
