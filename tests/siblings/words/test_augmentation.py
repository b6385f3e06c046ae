"""Changes of training crops against NumPy."""

import numpy as np
from keras import ops

from show_attend_tell.data.word_crops import normalise
from show_attend_tell.siblings.words.augmentation import (
    CONTRASTS,
    FARTHEST,
    Changes,
    change_crops,
    draw_changes,
    normalised,
)

CROPS = np.random.default_rng(0).integers(0, 256, (6, 32, 100), np.uint8)


def changed(crops, changes):
    return np.asarray(
        change_crops(crops, Changes(*map(ops.convert_to_tensor, changes)))
    )


def unchanged(count):
    one = np.ones((count, 1, 1), np.float32)
    shift, noise = (
        np.zeros((count, 2), np.int32),
        np.zeros((count, 32, 100), np.float32),
    )
    return Changes(one, 0 * one, shift, noise)


def test_no_change_leaves_a_crop_as_it_is():
    np.testing.assert_allclose(changed(CROPS, unchanged(6)), CROPS, atol=1e-4)


def test_a_crop_moves_by_whole_pixels_and_repeats_its_border():
    shift = np.array([[2, -1], [-2, 2], [0, 1], [1, 0], [0, 0], [-1, -2]], np.int32)
    found = changed(CROPS, unchanged(6)._replace(shift=shift))
    for crop, (down, right), moved in zip(CROPS, shift, found, strict=True):
        rows = np.clip(np.arange(32) - down, 0, 31)
        columns = np.clip(np.arange(100) - right, 0, 99)
        np.testing.assert_allclose(moved, crop[rows][:, columns], atol=1e-4)


def test_contrast_brightness_and_noise_are_clipped_to_grey_levels():
    changes = draw_changes(np.random.default_rng(1), 6)
    changes = changes._replace(shift=np.zeros((6, 2), np.int32))
    x = (CROPS - 127.5) * changes.contrast + 127.5 + changes.brightness
    wanted = np.clip(np.clip(x, 0, 255) + changes.noise, 0, 255)
    np.testing.assert_allclose(changed(CROPS, changes), wanted, atol=1e-3)


def test_amounts_stay_in_their_ranges_and_use_them():
    changes = draw_changes(np.random.default_rng(2), 500)
    assert set(changes.shift.ravel().tolist()) == set(range(-FARTHEST, FARTHEST + 1))
    low, high = changes.contrast.min(), changes.contrast.max()
    assert CONTRASTS[0] <= low < 0.7 < 1.6 < high <= CONTRASTS[1]
    assert changes.contrast.dtype == changes.noise.dtype == np.float32


def test_the_same_generator_gives_the_same_amounts():
    one, other = (draw_changes(np.random.default_rng([1, 2]), 3) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_crops_are_normalised_as_those_that_are_read():
    flat = np.concatenate([CROPS, np.full((1, 32, 100), 7, np.uint8)])
    np.testing.assert_allclose(normalised(flat), normalise(flat), atol=1e-4)
