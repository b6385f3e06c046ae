"""Decoding JPEGs in a TensorFlow graph gives the pixels of Pillow."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from show_attend_tell.data.preprocessing import load_photo, to_square
from show_attend_tell.deployment.exports.jpeg_graph import (
    decode_to_square,
    read_orientation,
)

SIDE = 32


@pytest.fixture(scope="module")
def graphs():
    return {
        resize: tf.function(
            lambda jpeg, resize=resize: decode_to_square(jpeg, SIDE, resize),
            autograph=False,
            input_signature=[tf.TensorSpec((), tf.string)],
        )
        for resize in ("crop", "squash")
    }


def jpeg(width, height, mode="RGB", **options):
    """Return the bytes of a photo with coarse and fine structure."""
    rng = np.random.default_rng(width * 1000 + height)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3), np.uint8))
    pixels = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
    noise = rng.integers(-40, 40, pixels.shape)
    image = Image.fromarray(np.uint8(np.clip(pixels + noise, 0, 255))).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


def with_orientation(orientation):
    exif = Image.Exif()
    exif[0x010F] = "a maker"
    exif[0x0112] = orientation
    return exif


def assert_same(found, content, resize):
    """Assert equal pixels; in upright photos they may differ by 2 levels."""
    image = load_photo(io.BytesIO(content))
    expected = to_square(image, SIDE, resize)
    difference = np.abs(found.numpy().astype(int) - expected)
    assert difference.max() <= (2 if image.height > image.width else 0)


@pytest.mark.parametrize("resize", ["crop", "squash"])
@pytest.mark.parametrize(
    "size", [(32, 32), (224, 224), (20, 20), (97, 61), (61, 97), (400, 33), (36, 41)]
)
def test_pixels_are_those_of_pillow(graphs, resize, size):
    content = jpeg(*size, quality=90)
    assert_same(graphs[resize](content), content, resize)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "L"},
        {"progressive": True},
        {"subsampling": 0},
        {"subsampling": 2, "quality": 30},
    ],
)
def test_every_kind_of_jpeg_is_decoded_alike(graphs, options):
    content = jpeg(90, 70, **options)
    assert_same(graphs["squash"](content), content, "squash")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_turned_upright(graphs, orientation):
    content = jpeg(90, 60, exif=with_orientation(orientation))
    assert read_orientation(tf.constant(content)) == orientation
    assert_same(graphs["crop"](content), content, "crop")


def test_little_endian_exif_is_read():
    tiff = b"II*\0" + b"\x08\0\0\0" + b"\x01\0" + b"\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"
    exif = b"Exif\0\0" + tiff
    segment = b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
    before = b"\xff\xe0\x00\x10" + b"JFIF\0" + b"\0" * 9
    content = b"\xff\xd8" + before + segment + b"\xff\xda"
    assert read_orientation(tf.constant(content)) == 6
    assert read_orientation(tf.constant(b"\xff\xd8" + before + b"\xff\xda")) == 1


@pytest.mark.parametrize("length", [0, 1, 3, 20, 31, 40, 44])
def test_a_truncated_header_has_orientation_1_or_its_own(length):
    content = jpeg(8, 8, exif=with_orientation(3))[:length]
    assert read_orientation(tf.constant(content)) in (1, 3)
