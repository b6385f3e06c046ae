"""Photos and drawings of digits become pictures as MNIST has them."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from show_attend_tell.data.digit_image import digit_of_image
from show_attend_tell.runtime.errors import PhotoError


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
    weights = digit.sum(axis=0) / digit.sum()
    assert abs(weights @ (np.arange(28) + 0.5) - 14) <= 0.5


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


@pytest.mark.parametrize("ground", [0, 255, 130])
def test_an_image_without_ink_is_one_line(ground):
    with pytest.raises(PhotoError, match="`photo` must show a digit") as caught:
        digit_of_image(Image.new("RGB", (30, 30), (ground,) * 3))
    assert "\n" not in str(caught.value)


def test_one_pixel_and_transparent_images_are_refused():
    for image in (Image.new("L", (1, 1), 255), Image.new("RGBA", (9, 9))):
        with pytest.raises(PhotoError):
            digit_of_image(image)


def test_a_png_of_the_page_is_read():
    buffer = io.BytesIO()
    drawn(side=280, at=(140, 140), size=(22, 160)).save(buffer, "PNG")
    assert digit_of_image(Image.open(buffer)).sum() > 0
