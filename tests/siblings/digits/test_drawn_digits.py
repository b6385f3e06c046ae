"""Digits drawn by the program: shapes, classes, seeds, and that they can be learnt."""

import runpy
from pathlib import Path

import numpy as np

RESEARCH = Path(__file__).parents[3] / "research"
drawn_digits = runpy.run_path(str(RESEARCH / "drawn_digits.py"))["drawn_digits"]


def test_digits_are_pictures_of_every_class():
    images, labels = drawn_digits(100)
    assert images.shape == (100, 28, 28)
    assert images.dtype == labels.dtype == np.uint8
    np.testing.assert_array_equal(np.bincount(labels), np.full(10, 10))
    assert len({image.tobytes() for image in images}) == 100
    ink = (images > 100).mean(axis=(1, 2))
    assert 0.03 < ink.min() < ink.max() < 0.5


def test_the_same_seed_draws_the_same_digits_and_another_one_others():
    one, again, other = drawn_digits(30), drawn_digits(30), drawn_digits(30, seed=1)
    np.testing.assert_array_equal(one.images, again.images)
    np.testing.assert_array_equal(one.labels, again.labels)
    assert (one.images != other.images).any()


def test_the_nearest_other_digit_is_mostly_of_the_same_class():
    (images, labels), (others, theirs) = drawn_digits(600), drawn_digits(100, seed=1)
    flat, own = (x.reshape(len(x), -1).astype(float) for x in (images, others))
    distances = (flat**2).sum(1) - 2 * own @ flat.T
    found = labels[distances.argmin(1)]
    assert (found == theirs).mean() > 0.75  # 0.1 by chance
