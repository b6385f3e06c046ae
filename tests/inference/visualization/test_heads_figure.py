"""The figure of the heads: its rows, columns and labels."""

import itertools

import numpy as np
import pytest

from show_attend_tell.inference.visualization.attention_figure import (
    head_rows,
    lift_of,
    maps_figure,
)

WORDS = ["a", "$red$", "circle"]


@pytest.fixture
def weights(rng):
    return rng.dirichlet(np.ones(6), (3, 2, 3)).reshape(3, 2, 3, 2, 3)


def test_there_is_a_row_for_each_head_of_the_layer_and_for_each_layer(weights):
    rows = head_rows(weights, 2, 0)
    figure = maps_figure(np.zeros((20, 30, 3), np.uint8), WORDS, rows)
    panels = np.reshape(figure.axes, (5, 3))
    labels = [row[0].texts[0].get_text() for row in panels]
    heads = ["layer 2\nhead 1", "layer 2\nhead 2"]
    assert labels == [*heads, "layer 1\nmean", "layer 2\nmean (α)", "layer 3\nmean"]
    assert [axes.get_title() for axes in panels[0]] == WORDS
    labels = [label for label, _ in head_rows(weights, 2, 1)]
    assert labels[0] == "layer 2\nhead 1 (α)"
    assert labels[3] == "layer 2\nmean"


def test_each_panel_is_bright_where_its_weight_is_large(weights):
    weights[:] = 0
    weights[0, 1, 2, 1, 0] = 1  # layer 1, head 2, third word, lower left
    grey = np.full((64, 96, 3), 120, np.uint8)
    figure = maps_figure(grey, WORDS, head_rows(weights, 1, 2))
    shown = figure.axes[1 * 3 + 2].images[0].get_array().astype(float).mean(axis=-1)
    assert shown[40:, :24].mean() > 2 * shown[:24, 72:].mean()
    even = figure.axes[0].images[0].get_array()
    assert np.ptp(even.astype(float)) == 0


def test_the_photo_is_seen_under_the_heads_of_a_dark_photo(weights, rng):
    weights[:] = 0
    weights[:, :, :, 1, 0] = 1  # all but the lower left is veiled
    night = rng.integers(0, 40, (64, 96, 3), np.uint8)
    figure = maps_figure(night, WORDS, head_rows(weights, 1, 2))
    shown = figure.axes[0].images[0].get_array().astype(float)
    day = rng.integers(60, 140, (64, 96, 3), np.uint8)
    figure = maps_figure(day, WORDS, head_rows(weights, 1, 2))
    usual = figure.axes[0].images[0].get_array().astype(float)
    assert shown[:24, 72:].mean() > 0.8 * usual[:24, 72:].mean() > 20
    assert np.ptp(shown[:24, 72:]) > 20  # not a flat grey
    np.testing.assert_array_equal(lift_of(day), 1)


def test_labels_of_a_panorama_do_not_overlap(weights):
    figure = maps_figure(
        np.zeros((10, 800, 3), np.uint8), WORDS, head_rows(weights, 2, 0)
    )
    boxes = [axes.texts[0].get_window_extent() for axes in figure.axes[::3]]
    for upper, lower in itertools.pairwise(boxes):
        assert upper.y0 >= lower.y1


def test_a_region_is_outlined_in_every_panel(weights):
    rows, box = head_rows(weights, 2, 0), (0.25, 0.5, 0.75, 1)
    figure = maps_figure(np.zeros((20, 30, 3), np.uint8), WORDS, rows, region=box)
    for axes in figure.axes:
        assert axes.patches[0].get_bbox().bounds == (0.25, 0, 0.5, 0.5)
