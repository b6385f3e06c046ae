"""Prepared digits, and the pictures that are made of them."""

import functools

import numpy as np
import pytest
from made_up_digits import digits
from PIL import Image, ImageDraw
from refusals import refusal, refused

from show_attend_tell.runtime.errors import DataError, PhotoError
from show_attend_tell.siblings.digits.data import (
    Digits,
    binarise,
    digit_of_image,
    held_out_binary,
    held_out_pictures,
    make_pictures,
    read_digits,
    write_digits,
)
from show_attend_tell.siblings.digits.settings import DigitSettings


def settings(**changes):
    return DigitSettings(name="made-up", source="mnist", **changes)


def test_the_last_training_digits_are_the_validation_digits(tmp_path):
    train, test = digits(30), digits(7, seed=1)
    write_digits(tmp_path, {"train": train, "test": test})
    splits = [read_digits(tmp_path, split, 10) for split in ("train", "val", "test")]
    np.testing.assert_array_equal(splits[0].images, train.images[:20])
    np.testing.assert_array_equal(splits[1].labels, train.labels[20:])
    np.testing.assert_array_equal(splits[2].images, test.images)


error_of = functools.partial(refusal, DataError)


def test_absent_damaged_or_too_few_digits_are_named_in_one_line(tmp_path):
    assert "run `prepare` first" in error_of(read_digits, tmp_path, "train", 5)
    path = write_digits(tmp_path, {"train": digits(5)})
    assert "has no test digits" in error_of(read_digits, tmp_path, "test", 2)
    assert "less than the 5" in error_of(read_digits, tmp_path, "val", 5)
    content = path.read_bytes()
    changed = bytearray(content)
    changed[len(content) // 3] ^= 255
    for damaged in (b"", content[: len(content) // 2], content[::-1], bytes(changed)):
        path.write_bytes(damaged)
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


def test_a_pixel_is_one_with_the_probability_of_its_intensity(rng):
    intensities = np.array([0, 1, 64, 128, 254, 255], np.uint8)
    n = 200_000
    found = binarise(np.tile(intensities, (n, 1)), rng).astype(float) / 255
    p = intensities / 255
    error = np.sqrt(p * (1 - p) / n)
    assert (np.abs(found.mean(0) - p) <= 4.5 * error).all()
    assert (found[:, 0].max(), found[:, -1].min()) == (0, 1)


@pytest.mark.parametrize("binary", [False, True])
def test_held_out_pictures_are_the_same_in_every_call(binary):
    own, chosen = digits(20), settings(canvas=60, clutter=0 if binary else 4)

    def images(split):
        if binary:
            return held_out_binary(own, chosen, split)
        return held_out_pictures(own, chosen, split).images

    once = images("val")
    np.testing.assert_array_equal(once, images("val"))
    assert (images("test") != once).any()
    assert (set(np.unique(once)) == {0, 255}) == binary


def test_the_digest_depends_on_images_and_labels():
    one = digits(5)
    other = Digits(one.images, one.labels[::-1].copy())
    assert len({one.digest(), other.digest(), digits(5, seed=2).digest()}) == 3
    assert one.digest() == digits(5).digest()


def drawn(side=200, at=(100, 100), size=(20, 120), ink=255, ground=0):
    """Return an image of a filled rectangle with its centre at a point."""
    image = Image.new("RGB", (side, side), (ground,) * 3)
    (x, y), (w, h) = at, size
    box = [x - w // 2, y - h // 2, x + w // 2 - 1, y + h // 2 - 1]
    ImageDraw.Draw(image).rectangle(box, fill=(ink,) * 3)
    return image


def test_ink_fills_20_pixels_and_is_centred_by_its_mass():
    digit = digit_of_image(drawn(at=(40, 130)))
    rows, columns = (np.flatnonzero(digit.any(axis=k)) for k in (1, 0))
    assert (rows[0], rows[-1]) == (4, 23)
    assert columns[-1] - columns[0] + 1 == 3  # 20 / 120 of 20 pixels
    assert digit.max() == 255
    assert digit.dtype == np.uint8


def test_place_size_and_polarity_do_not_matter():
    expected = digit_of_image(drawn())
    for other in (
        drawn(at=(60, 70)),
        drawn(side=400, at=(200, 200), size=(40, 240)),
        drawn(ink=0, ground=255),
        drawn(ink=90, ground=160),
    ):
        np.testing.assert_array_equal(digit_of_image(other), expected)


def test_an_uneven_shape_is_balanced_around_the_middle():
    image = drawn(size=(100, 100))
    ImageDraw.Draw(image).rectangle([50, 50, 99, 149], fill=(120, 120, 120))
    digit = digit_of_image(image).astype(float)
    weights = digit.sum(axis=0) / digit.sum()
    assert abs(weights @ (np.arange(28) + 0.5) - 14) <= 0.5


def test_a_wide_or_tiny_shape_stays_inside():
    for size in ((180, 4), (4, 180), (2, 2)):
        digit = digit_of_image(drawn(size=size))
        assert digit.shape == (28, 28)
        assert digit.any()


def test_noise_of_a_photo_is_not_ink(rng):
    size = (24, 120)  # 4 x 20 pixels of the digit
    image = np.asarray(drawn(size=size, ink=40, ground=200)).astype(int)
    image = image + rng.integers(-15, 16, image.shape)
    noisy = Image.fromarray(image.clip(0, 255).astype(np.uint8))
    difference = digit_of_image(noisy).astype(int) - digit_of_image(drawn(size=size))
    assert np.abs(difference).max() < 100
    assert digit_of_image(noisy)[:3].max() == 0


BLANK = [Image.new("RGB", (30, 30), (ground,) * 3) for ground in (0, 255, 130)]
BLANK += [Image.new("L", (1, 1), 255), Image.new("RGBA", (9, 9))]
SPECKS = Image.new("L", (900, 900), 255)
SPECKS.putpixel((20, 30), 0)
SPECKS.putpixel((870, 880), 0)


@pytest.mark.parametrize("image", [*BLANK, SPECKS])
def test_an_image_without_ink_is_one_line(image):
    with refused(PhotoError, "`photo` must show a digit"):
        digit_of_image(image)
