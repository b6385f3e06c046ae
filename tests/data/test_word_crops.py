"""Crops of words are read alike everywhere, and normalised by their own statistics."""

import io
import os

import numpy as np
import pytest
from PIL import Image

from show_attend_tell.data.word_crops import normalise, read_crop
from show_attend_tell.runtime.errors import PhotoError


def png(array, **options):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "png", **options)
    file.seek(0)
    return file


def test_a_crop_of_the_right_size_is_read_as_it_is(rng, tmp_path):
    array = rng.integers(0, 256, (32, 100), dtype=np.uint8)
    np.testing.assert_array_equal(read_crop(png(array)), array)
    path = tmp_path / "word.png"
    path.write_bytes(png(array).getvalue())
    np.testing.assert_array_equal(read_crop(path), array)


def test_a_colour_crop_becomes_grey_and_bicubic(rng):
    array = rng.integers(0, 256, (40, 90, 3), dtype=np.uint8)
    image = Image.fromarray(array).convert("L")
    expected = np.asarray(image.resize((100, 32), Image.Resampling.BICUBIC))
    crop = read_crop(png(array))
    np.testing.assert_array_equal(crop, expected)
    assert crop.dtype == np.uint8


def test_the_exif_orientation_of_a_crop_is_applied(rng):
    upright = rng.integers(0, 256, (32, 100), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    turned = png(np.rot90(upright).copy(), exif=exif)
    np.testing.assert_array_equal(read_crop(turned), upright)


def test_the_smallest_crop_is_read():
    crop = read_crop(png(np.full((1, 1), 77, np.uint8)))
    assert crop.shape == (32, 100)
    assert (crop == 77).all()


def test_files_that_are_no_crops_are_refused_in_one_line(tmp_path):
    empty, text, pipe = (tmp_path / name for name in ("a.png", "b.png", "c.png"))
    empty.write_bytes(b"")
    text.write_text("word")
    os.mkfifo(pipe)
    cut = tmp_path / "d.png"
    cut.write_bytes(png(np.zeros((50, 50), np.uint8)).getvalue()[:60])
    for path in (empty, text, pipe, cut, tmp_path, tmp_path / "absent.png"):
        with pytest.raises(PhotoError) as error:
            read_crop(path)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


def test_a_normalised_crop_has_mean_0_and_deviation_1(rng):
    crops = rng.integers(0, 256, (3, 32, 100), dtype=np.uint8)
    crops[1] = 40 + crops[1] // 4
    x = crops.astype(np.float64)
    expected = [(one - one.mean()) / one.std() for one in x]
    found = normalise(crops)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(normalise(crops[1]), found[1], atol=1e-6)


def test_brightness_and_contrast_do_not_matter(rng):
    crop = rng.integers(0, 100, (32, 100), dtype=np.uint8)
    np.testing.assert_allclose(normalise(crop), normalise(2 * crop + 9), atol=1e-4)


def test_a_crop_of_one_grey_level_is_zero_and_its_noise_stays_small():
    crop = np.full((32, 100), 200, np.uint8)
    assert (normalise(crop) == 0).all()
    crop[0, 0] = 201
    assert abs(normalise(crop)).max() <= 1
