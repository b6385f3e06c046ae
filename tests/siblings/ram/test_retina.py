"""The retina: patches of several scales as products of matrices, against loops."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from show_attend_tell.siblings.ram.retina import see


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
