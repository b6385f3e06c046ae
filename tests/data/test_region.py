"""Regions: parsing, the map of the network, and the share of each cell."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from show_attend_tell.data.region import (
    SIGMA,
    cell_shares,
    parse_region,
    region_in_view,
    smooth,
)
from show_attend_tell.runtime.errors import CaptionError

SIDE = 56  # crop scales the shortest side to 64


def test_four_numbers_with_decimals_and_spaces_are_parsed():
    assert parse_region("10, 2.5,110,90") == (10, 2.5, 110, 90)


def test_percents_are_shares_of_the_photo():
    assert parse_region("10%, 50 %,80,100%", (200, 60)) == (20, 30, 80, 60)
    for size in ((40, 30), (4000, 3000)):
        box = region_in_view("10%,10%,50%,90%", size, SIDE, "squash")
        np.testing.assert_allclose(box, (0.1, 0.1, 0.5, 0.9))
    with pytest.raises(CaptionError, match="inside the photo, 0,0,200,100"):
        region_in_view("0,0,101%,5%", (200, 100), SIDE, "crop")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1,2,3",
        "1,2,3,4,5",
        "a,b,c,d",
        "1,2,3,nan",
        "1,2,3,inf",
        "1;2;3;4",
        "%,1,2,3",
    ],
)
def test_other_texts_are_refused_in_one_line(text):
    with refused(CaptionError, r"`region` must be four numbers.*Rec"):
        parse_region(text)


@pytest.mark.parametrize(
    ("region", "reason"),
    [
        ((1, 2, 3), "four numbers"),
        (None, "four numbers"),
        ((50, 10, 50, 20), "x0 < x1"),
        ((50, 20, 60, 10), "x0 < x1"),
        ((-1, 0, 5, 5), "inside the photo, 0,0,200,100"),
        ((0, 0, 200.5, 5), "inside the photo"),
        ((0, 0, 5, 101), "inside the photo"),
        ((0, 0, 50, 6), "overlap"),  # the crop leaves out 6.25 rows at the top
    ],
)
def test_regions_that_are_empty_outside_or_cropped_away_are_refused(region, reason):
    with pytest.raises(CaptionError, match=f"`region` must.*{reason}.*Received"):
        region_in_view(region, (200, 100), SIDE, "crop")


def test_a_region_is_mapped_to_the_square_and_clipped():
    assert region_in_view((20, 25, 100, 75), (200, 100), 8, "squash") == (
        *(0.1, 0.25),
        *(0.5, 0.75),
    )
    # 200 x 100 is scaled to 128 x 64, of which the square is 36..92, 4..60
    found = region_in_view((0, 50, 100, 100), (200, 100), SIDE, "crop")
    np.testing.assert_allclose(found, (0, 28 / 56, 28 / 56, 1))


FRACTIONS = st.lists(st.integers(0, 24), min_size=2, max_size=2, unique=True)


@given(FRACTIONS, FRACTIONS, st.integers(1, 6), st.integers(1, 6))
def test_shares_are_the_areas_counted_in_fine_pixels(across, down, rows, columns):
    (x0, x1), (y0, y1) = sorted(across), sorted(down)
    fine = np.zeros((24 * rows, 24 * columns))  # 24 rows, 24 columns are 1
    fine[y0 * rows : y1 * rows, x0 * columns : x1 * columns] = 1
    counted = fine.reshape(rows, 24, columns, 24).mean((1, 3))
    region = (x0 / 24, y0 / 24, x1 / 24, y1 / 24)
    np.testing.assert_allclose(
        cell_shares(region, (rows, columns)), (counted / counted.max()).ravel(), 1e-5
    )


def test_the_smallest_regions_direct_attention_to_their_cell():
    shares = cell_shares((0.6, 0.1, 0.6 + 1e-15, 0.1 + 1e-16), (2, 2))
    np.testing.assert_array_equal(shares, [0, 1, 0, 0])
    np.testing.assert_array_equal(cell_shares((0, 0, 1e-180, 1e-180), (1, 2)), [1, 0])


def test_smoothing_keeps_the_sum_and_even_attention_and_spreads_a_peak(rng):
    alpha = rng.dirichlet(np.ones(63), size=(2, 5))  # (2, 5, L)
    np.testing.assert_allclose(smooth(alpha, (7, 9)).sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(smooth(np.full(63, 1 / 63), (7, 9)), 1 / 63)
    peak = smooth(np.eye(81)[40], (9, 9)).reshape(9, 9)  # the middle of 9 x 9
    gauss = np.exp(-0.5 * (np.arange(9) - 4) ** 2 / SIGMA**2)
    np.testing.assert_allclose(
        peak, np.outer(gauss, gauss) / gauss.sum() ** 2, atol=2e-4
    )
