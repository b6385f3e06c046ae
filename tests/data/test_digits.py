"""Prepared digits, and the pictures that are made of them."""

import numpy as np
import pytest
from made_up_digits import digits

from show_attend_tell.config.siblings import DigitSettings
from show_attend_tell.data.digits import (
    Digits,
    held_out_pictures,
    holds_test_digits,
    make_pictures,
    read_digits,
    write_digits,
)
from show_attend_tell.runtime.errors import DigitsError


def settings(**changes):
    return DigitSettings(name="made-up", source="mnist", **changes)


def test_the_last_training_digits_are_the_validation_digits(tmp_path):
    train, test = digits(30), digits(7, seed=1)
    write_digits(tmp_path, {"train": train, "test": test})
    splits = [read_digits(tmp_path, split, 10) for split in ("train", "val", "test")]
    np.testing.assert_array_equal(splits[0].images, train.images[:20])
    np.testing.assert_array_equal(splits[1].labels, train.labels[20:])
    np.testing.assert_array_equal(splits[2].images, test.images)
    assert holds_test_digits(tmp_path)


def error_of(function, *arguments):
    with pytest.raises(DigitsError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_absent_damaged_or_too_few_digits_are_named_in_one_line(tmp_path):
    assert "run `prepare` first" in error_of(read_digits, tmp_path, "train", 5)
    path = write_digits(tmp_path, {"train": digits(5)})
    assert not holds_test_digits(tmp_path)
    assert "has no test digits" in error_of(read_digits, tmp_path, "test", 2)
    assert "less than the 5" in error_of(read_digits, tmp_path, "val", 5)
    content = path.read_bytes()
    for damaged in (b"", content[: len(content) // 2], content[::-1]):
        path.write_bytes(damaged)
        assert "run `prepare` again" in error_of(read_digits, tmp_path, "val", 2)
    damaged = bytearray(content)
    damaged[len(content) // 3] ^= 255
    path.write_bytes(bytes(damaged))
    assert "run `prepare` again" in error_of(read_digits, tmp_path, "val", 2)


def test_a_picture_as_large_as_a_digit_is_the_digit(rng):
    images = digits(4).images
    np.testing.assert_array_equal(
        make_pictures(images, images, settings(), rng), images
    )


def test_a_digit_is_placed_whole_and_anywhere(rng):
    images = np.full((3000, 28, 28), 200, np.uint8)
    pictures = make_pictures(images, images, settings(canvas=30), rng)
    rows, columns = pictures.any(axis=2), pictures.any(axis=1)
    assert (rows.sum(1) == 28).all()
    assert (columns.sum(1) == 28).all()
    corners = set(zip(rows.argmax(1).tolist(), columns.argmax(1).tolist(), strict=True))
    assert corners == {(y, x) for y in range(3) for x in range(3)}


def test_clutter_is_made_of_pieces_of_the_pool_and_ink_ends_at_white(rng):
    blank, white = (np.full((2000, 28, 28), v, np.uint8) for v in (0, 255))
    pictures = make_pictures(blank, white, settings(canvas=40, clutter=1), rng)
    assert (pictures.sum((1, 2)) == 255 * 64).all()
    corners = pictures.any(axis=2).argmax(1)
    assert (corners.min(), corners.max()) == (0, 32)
    pictures = make_pictures(white, white, settings(canvas=40, clutter=5), rng)
    assert set(np.unique(pictures)) == {0, 255}


def test_a_piece_is_a_window_of_its_digit(rng):
    pool = np.arange(28 * 28).reshape(1, 28, 28) % 251 + 1
    chosen = settings(canvas=28, clutter=1)
    blank = np.zeros((50, 28, 28), np.uint8)
    for picture in make_pictures(blank, pool.astype(np.uint8), chosen, rng):
        y, x = (picture.any(axis=1 - k).argmax() for k in range(2))
        piece = picture[y : y + 8, x : x + 8]
        windows = np.lib.stride_tricks.sliding_window_view(pool[0], (8, 8))
        assert (windows == piece).all((2, 3)).any()


def test_held_out_pictures_are_the_same_in_every_call():
    own, chosen = digits(20), settings(canvas=60, clutter=4)
    once, again = (held_out_pictures(own, chosen, "val") for _ in range(2))
    np.testing.assert_array_equal(once.images, again.images)
    other = held_out_pictures(own, chosen, "test")
    assert (other.images != once.images).any()


def test_the_digest_depends_on_images_and_labels():
    one = digits(5)
    other = Digits(one.images, one.labels[::-1].copy())
    assert len({one.digest(), other.digest(), digits(5, seed=2).digest()}) == 3
    assert one.digest() == digits(5).digest()
