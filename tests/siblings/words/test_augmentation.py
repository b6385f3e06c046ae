"""Changes of training crops against NumPy."""

import numpy as np
from keras import ops

from show_attend_tell.siblings.words.augmentation import (
    GAMMAS,
    Changes,
    change_crops,
    draw_changes,
    make_transform,
    normalised,
)
from show_attend_tell.siblings.words.data import normalise

CROPS = np.random.default_rng(0).integers(0, 256, (6, 32, 100), np.uint8)
ROWS, COLUMNS = np.mgrid[:32, :100]


def changed(crops, changes):
    return np.asarray(
        change_crops(crops, Changes(*map(ops.convert_to_tensor, changes)))
    )


def unchanged(count, **amounts):
    names = ("wide", "high", "slant", "turn", "right", "down")
    values = {"wide": 1.0, "high": 1.0} | amounts
    given = (np.full(count, values.get(name, 0.0)) for name in names)
    one = np.ones((count, 1, 1), np.float32)
    noise = np.zeros((count, 32, 100), np.float32)
    return Changes(make_transform(*given), one, noise)


def test_a_change_of_size_slant_and_turn_is_bilinear_about_the_middle():
    amounts = {"wide": 0.95, "high": 1.06, "slant": 0.1, "turn": -0.02, "right": 0.7}
    x, y = COLUMNS - 49.5, ROWS - 15.5
    x, y = (0.95 * x + 0.1 * y + 50.2, -0.02 * x + 1.06 * y + 15.5)
    low_x, low_y = np.floor(x).astype(int), np.floor(y).astype(int)
    wanted = 0
    for dx, dy in ((0, 0), (0, 1), (1, 0), (1, 1)):
        share = np.abs(1 - dx - (x - low_x)) * np.abs(1 - dy - (y - low_y))
        rows, columns = np.clip(low_y + dy, 0, 31), np.clip(low_x + dx, 0, 99)
        wanted = wanted + share * CROPS[:, rows, columns]
    found = changed(CROPS, unchanged(6, **amounts))
    np.testing.assert_allclose(found, wanted, atol=0.1)


def test_gamma_and_noise_are_clipped_to_grey_levels():
    changes = draw_changes(np.random.default_rng(1), 6)
    changes = changes._replace(transform=unchanged(6).transform)
    wanted = np.clip(255 * (CROPS / 255) ** changes.gamma + changes.noise, 0, 255)
    np.testing.assert_allclose(changed(CROPS, changes), wanted, atol=0.05)


def test_amounts_stay_in_their_ranges_and_use_them():
    changes = draw_changes(np.random.default_rng(2), 500)
    wide, slant, _, turn, high, _, *zero = changes.transform.T
    for values, middle, most in (
        (wide, 1, 0.08),
        (high, 1, 0.08),
        (slant, 0, 0.15),
        (turn, 0, 0.03),
    ):
        assert 0.9 * most < np.abs(values - middle).max() <= most + 1e-6
    assert not np.any(zero)
    low, high = changes.gamma.min(), changes.gamma.max()
    assert GAMMAS[0] <= low < 0.65 < 1.5 < high <= GAMMAS[1]
    assert {one.dtype for one in changes} == {np.dtype(np.float32)}


def test_crops_are_normalised_as_those_that_are_read():
    flat = np.concatenate([CROPS, np.full((1, 32, 100), 7, np.uint8)])
    np.testing.assert_allclose(normalised(flat), normalise(flat), atol=1e-4)
