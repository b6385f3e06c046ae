"""The retina: patches of several scales as products of matrices, against loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from show_attend_tell.siblings.ram.retina import see, selection_matrix


def patches(images, places, cells, scales, reach):
    given = (np.asarray(x, np.float32) for x in (images, places))
    return np.asarray(see(*map(ops.convert_to_tensor, given), cells, scales, reach))


def patches_by_loops(images, places, cells, scales, reach):
    """Average every pixel of every cell, one after the other."""
    N, H, W = images.shape
    found = np.zeros((N, scales, cells, cells))
    for n in range(N):
        for i in range(scales):
            width, pixels = cells * 2**i, 2**i
            left, top = (
                math.floor(side / 2 + np.float32(place) * reach - width / 2 + 0.5)
                for side, place in ((W, places[n, 0]), (H, places[n, 1]))
            )
            for row in range(width):
                for column in range(width):
                    y, x = top + row, left + column
                    if 0 <= y < H and 0 <= x < W:
                        cell = (n, i, row // pixels, column // pixels)
                        found[cell] += images[n, y, x] / pixels**2
    return found


# Places that float32 holds exactly, so that no border of a pixel depends on rounding.
steps = st.integers(-96, 96).map(lambda k: k / 64)


@given(
    H=st.integers(5, 40),
    W=st.integers(5, 40),
    cells=st.integers(1, 6),
    scales=st.integers(1, 3),
    x=steps,
    y=steps,
    seed=st.integers(0, 99),
)
def test_patches_equal_means_over_pixels(H, W, cells, scales, x, y, seed):
    images = np.random.default_rng(seed).random((2, H, W), np.float32)
    places = np.array([[x, y], [y, x]], np.float32)
    found = patches(images, places, cells, scales, H / 2)
    expected = patches_by_loops(images, places, cells, scales, H / 2)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_centre_of_28_pixels_gives_rows_10_to_17():
    rows = np.asarray(selection_matrix(ops.zeros((1,)), 8, 0, 28, 14.0))[0]
    np.testing.assert_array_equal(rows, np.eye(28)[10:18])


@pytest.mark.parametrize(
    ("place", "covered"), [(0.0, 1), (-1.0, 0.25), (1.0, 0.25), (3.0, 0)]
)
def test_a_white_picture_is_1_inside_and_its_covered_share_at_borders(place, covered):
    seen = patches(np.ones((1, 32, 32)), np.full((1, 2), place), 4, 3, 16.0)
    np.testing.assert_allclose(seen.mean((2, 3))[0], covered, atol=1e-6)
    assert set(np.unique(seen)) <= {0.0, 1.0}  # the borders are those of cells here


def test_moving_picture_and_place_together_changes_nothing_away_from_borders(rng):
    picture = np.zeros((1, 40, 40), np.float32)
    picture[0, 15:25, 15:25] = rng.random((10, 10))
    moved = np.roll(picture, (3, -5), axis=(1, 2))
    before = patches(picture, [[0.0, 0.0]], 4, 2, 20.0)
    after = patches(moved, [[-5 / 20, 3 / 20]], 4, 2, 20.0)
    np.testing.assert_allclose(after, before, atol=1e-6)


def test_a_place_is_x_then_y():
    picture = np.zeros((1, 20, 20), np.float32)
    picture[0, 5, 15] = 1  # row 5 is above, column 15 right of the centre
    seen = patches(picture, [[0.55, -0.45]], 2, 1, 10.0)
    assert seen.sum() == 1


def test_patches_of_several_pictures_equal_those_of_each(rng):
    images = rng.random((5, 30, 30), np.float32)
    places = rng.uniform(-1, 1, (5, 2)).astype(np.float32)
    together = patches(images, places, 4, 2, 15.0)
    for n in range(5):
        alone = patches(images[n : n + 1], places[n : n + 1], 4, 2, 15.0)
        np.testing.assert_allclose(together[n], alone[0], atol=1e-6)
