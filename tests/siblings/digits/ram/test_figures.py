"""Figures of glimpses: the path over the picture, and what the model saw."""

import numpy as np
import tiny_draw
import tiny_ram as tiny
from matplotlib.patches import Rectangle
from random_weights import randomised

from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.siblings.digits.draw.model import WindowClassifier
from show_attend_tell.siblings.digits.ram.figures import (
    draw_glimpses,
    retina_glimpses,
    window_glimpses,
)
from show_attend_tell.siblings.digits.ram.prediction import Prediction
from show_attend_tell.siblings.digits.settings import DrawReaderSettings

SIDE, T = 24, 3
STOP = {"stop": "learned", "price": 0.1}


def seen(places, **fields):
    """Return a prediction at places."""
    return Prediction(np.zeros((len(places), 10)), places, None, **fields)


def test_a_view_has_the_smallest_scale_in_the_middle_and_the_largest_around(rng):
    model = tiny.build(rng, canvas=SIDE, patch=4, scales=2)
    images = rng.integers(0, 256, (2, SIDE, SIDE)).astype(np.uint8)
    views = retina_glimpses(images, seen(np.zeros((2, T, 2))), model).views
    assert views.shape == (2, T, 8, 8)
    image = images[0] / 255
    np.testing.assert_allclose(views[0, 1, 2:6, 2:6], image[10:14, 10:14], atol=1e-6)
    around = image[8:16, 8:16].reshape(4, 2, 4, 2).mean((1, 3))
    around = around.repeat(2, axis=0).repeat(2, axis=1)
    np.testing.assert_allclose(views[0, 1, :2], around[:2], atol=1e-6)
    np.testing.assert_allclose(views[0, 1, :, 6:], around[:, 6:], atol=1e-6)


def test_the_path_goes_through_the_places_from_a_filled_to_an_open_dot(rng):
    model = tiny.build(rng, canvas=SIDE, patch=4, scales=1)
    images = np.zeros((2, SIDE, SIDE), np.uint8)
    places = np.array([[[-1, -1], [0, 0], [0.5, 0.25]]] * 2, np.float32)
    given = images, retina_glimpses(images, seen(places), model), np.array([3, 7])
    figure = draw_glimpses(*given)
    assert len(figure.axes) == 2 * (1 + T)
    axes = figure.axes[0]
    path, start, end = axes.lines
    np.testing.assert_allclose(path.get_xdata(), [0, 12, 18])
    np.testing.assert_allclose(path.get_ydata(), [0, 12, 15])
    assert start.get_xdata() == [0]
    assert end.get_markerfacecolor() == "none"
    boxes = [p.get_xy() for p in axes.patches if isinstance(p, Rectangle)]
    assert boxes == [(-2, -2), (10, 10), (16, 13)]
    assert [a.get_ylabel() for a in figure.axes[:: 1 + T]] == ["3", "7"]
    # A frame of an animation has the glimpses so far, and no class.
    first, *panels = draw_glimpses(*given, shown=2).axes[: 1 + T]
    assert len(first.lines[0].get_xdata()) == 2
    assert [len(panel.images) for panel in panels] == [1, 1, 0]
    assert first.get_ylabel() == ""


def test_dollar_signs_in_the_name_of_a_class_are_no_formula(rng):
    model = tiny.build(rng, canvas=SIDE, patch=4, scales=1)
    images = np.zeros((1, SIDE, SIDE), np.uint8)
    glimpses = retina_glimpses(images, seen(np.zeros((1, T, 2), np.float32)), model)
    figure = draw_glimpses(images, glimpses, ["A$AP_$"])
    figure_to_array(figure, 60)  # `AP_` is a malformed formula


def test_boxes_have_the_drawn_size_and_views_what_is_inside(rng):
    model = tiny.build(rng, canvas=SIDE, patch=4, scales=1, zoom="learned")
    images = rng.integers(0, 256, (1, SIDE, SIDE)).astype(np.uint8)
    places = np.zeros((1, T, 2), np.float32)
    zooms = np.array([[1.0, 2.0, 0.5]])
    found = retina_glimpses(images, seen(places, zooms=zooms), model)
    expected = [[10, 10, 14, 14], [8, 8, 16, 16], [11, 11, 13, 13]]
    np.testing.assert_array_equal(found.boxes[0], expected)
    image = images[0] / 255
    wide = image[8:16, 8:16].reshape(4, 2, 4, 2).mean((1, 3))
    np.testing.assert_allclose(found.views[0, 1], wide, atol=1e-6)
    narrow = image[11:13, 11:13].repeat(2, axis=0).repeat(2, axis=1)
    np.testing.assert_allclose(found.views[0, 2], narrow, atol=1e-6)


def test_the_path_ends_where_the_model_stopped(rng):
    model = tiny.build(rng, canvas=SIDE, patch=4, scales=1, **STOP)
    images = np.zeros((2, SIDE, SIDE), np.uint8)
    places = np.array([[[-1, -1], [0, 0], [0.5, 0.25]]] * 2, np.float32)
    counts = np.array([2, T])
    glimpses = retina_glimpses(images, seen(places, glimpses=counts), model)
    stopped, last = np.split(
        np.array(draw_glimpses(images, glimpses, np.array([3, 7])).axes), 2
    )
    np.testing.assert_allclose(stopped[0].lines[0].get_xdata(), [0, 12])
    assert len(stopped[0].patches) == 2
    assert [len(panel.images) for panel in stopped[1:]] == [1, 1, 0]
    assert [framed(panel) for panel in stopped[1:]] == [False, True, False]
    # Without a choice, after the last glimpse, there is no frame.
    assert [len(panel.images) for panel in last[1:]] == [1, 1, 1]
    assert not any(framed(panel) for panel in last[1:])
    # A frame of an animation before the stop has no class yet.
    early = draw_glimpses(images, glimpses, np.array([3, 7]), shown=1).axes
    assert early[0].get_ylabel() == ""
    assert not any(framed(panel) for panel in early)
    done = draw_glimpses(images, glimpses, np.array([3, 7]), shown=2).axes
    assert [done[k].get_ylabel() for k in (0, 1 + T)] == ["3", ""]


def framed(panel):
    return panel.spines["left"].get_visible()


def test_windows_have_the_boxes_and_views_of_the_equations(rng):
    side, N = 12, 3
    settings = DrawReaderSettings(steps=T, read=N, width=6)
    model = randomised(WindowClassifier(settings, side), rng)
    images = rng.integers(0, 256, (2, side, side)).astype(np.uint8)
    found = window_glimpses(images, model)
    parameters = np.asarray(model(images.astype("float32") / 255)["read"], float)
    for n in range(2):
        for t in range(T):
            across, down, _, log_stride, _ = parameters[n, t]
            F_y, F_x, _ = tiny_draw.window(parameters[n, t], N, side, side)
            view = F_y @ (images[n] / 255) @ F_x.T
            np.testing.assert_allclose(found.views[n, t], view, atol=1e-4)
            # Pixel 1 is from 0 to 1, so its centre is half a pixel to the right of 0.
            x, y = ((side + 1) / 2 * (g + 1) - 0.5 for g in (across, down))
            reach = (side - 1) / 2 * np.exp(log_stride)
            expected = [x - reach, y - reach, x + reach, y + reach]
            np.testing.assert_allclose(found.boxes[n, t], expected, rtol=1e-4)
            np.testing.assert_allclose(found.centres[n, t], [x, y], rtol=1e-4)
    assert 0 <= found.views.min() <= found.views.max() <= 1
