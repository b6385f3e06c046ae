"""Decoding, resizing and geometry, against Pillow and computation by hand."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from data_prep.locate import DataFolder
from show_attend_tell.data.preprocessing import (
    PHOTO_SUFFIXES,
    box_to_photo,
    box_to_square,
    load_photo,
    seen_region,
    to_square,
    to_view,
)
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.runtime.errors import PhotoError

SIZES = st.tuples(st.integers(20, 900), st.integers(20, 900))
KINDS = st.sampled_from(["crop", "squash"])


def as_file(image: Image.Image, kind: str = "PNG", **options) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, kind, **options)
    file.seek(0)
    return file


def noise(rng, height: int, width: int) -> Image.Image:
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))


def test_the_crop_is_the_centre_of_the_photo_scaled_to_eight_sevenths(rng):
    photo = noise(rng, 60, 101)
    scaled = photo.resize((round(101 * 64 / 60), 64), Image.Resampling.BICUBIC)
    left, top = (108 - 56) // 2, (64 - 56) // 2
    expected = np.asarray(scaled.crop((left, top, left + 56, top + 56)), int)
    square = to_square(photo, 56, "crop")
    assert square.shape == (56, 56, 3)
    assert np.abs(square.astype(int) - expected).max() <= 1


def test_the_papers_crop_takes_seven_eighths_of_the_shortest_side():
    # 500 x 375 -> 341 x 256; 224 from (58, 16)
    region = seen_region((500, 375), 224, "crop")
    scale = 375 / 256
    expected = (58 * 500 / 341, 16 * scale, 282 * 500 / 341, 240 * scale)
    np.testing.assert_allclose(region, expected)


def test_squashing_keeps_the_whole_photo(rng):
    photo = noise(rng, 40, 90)
    assert seen_region(photo.size, 32, "squash") == (0, 0, 90, 40)
    expected = np.asarray(photo.resize((32, 32), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(to_square(photo, 32, "squash"), expected)


def test_squashing_a_photo_of_the_right_size_leaves_it_alone(rng):
    photo = noise(rng, 32, 32)
    square = to_square(photo, 32, "squash")
    np.testing.assert_array_equal(square, np.asarray(photo))


@given(SIZES, KINDS, st.sampled_from([14, 56, 224]))
def test_the_seen_region_is_inside_the_photo(size, kind, side):
    x0, y0, x1, y1 = seen_region(size, side, kind)
    assert 0 <= x0 < x1 <= size[0]
    assert 0 <= y0 < y1 <= size[1]


@given(SIZES, KINDS)
def test_mapping_a_box_to_the_square_and_back_changes_nothing(size, kind):
    box = (1.0, 2.0, size[0] - 3.5, size[1] / 2)
    there = box_to_square(box, size, 224, kind)
    np.testing.assert_allclose(box_to_photo(there, size, 224, kind), box)


@given(SIZES, KINDS)
def test_the_seen_region_maps_to_the_square(size, kind):
    region = seen_region(size, 112, kind)
    square = box_to_square(region, size, 112, kind)
    np.testing.assert_allclose(square, (0, 0, 112, 112), atol=1e-9)


def test_a_mark_in_the_photo_appears_at_its_place():
    pixels = np.zeros((200, 300, 3), np.uint8)
    pixels[80:120, 160:180] = 255
    square = to_square(Image.fromarray(pixels), 112, "crop")
    x0, y0, x1, y1 = box_to_square((160, 80, 180, 120), (300, 200), 112, "crop")
    ys, xs = np.nonzero(square[..., 0] > 127)
    found = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
    np.testing.assert_allclose(found, (x0, y0, x1, y1), atol=1)


def test_a_very_long_photo_is_resized_in_little_memory():
    square = to_square(Image.new("RGB", (60_000, 3), "red"), 224, "crop")
    assert (square == (255, 0, 0)).all()


def test_the_exif_orientation_is_applied():
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20] = 255  # white on the left
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 6  # rotate clockwise
    photo = load_photo(as_file(image, "JPEG", exif=exif))
    assert photo.size == (20, 40)
    assert np.asarray(photo)[5].mean() > 250
    assert np.asarray(photo)[35].mean() < 5


def test_sixteen_bits_of_grey_become_eight():
    pixels = np.array([[0, 32896, 65535]], np.uint16)
    photo = load_photo(as_file(Image.fromarray(pixels)))
    np.testing.assert_array_equal(np.asarray(photo)[0, :, 1], [0, 128, 255])


def test_transparency_becomes_white():
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (10, 20, 30, 255))
    pixels = np.asarray(load_photo(as_file(image)))
    np.testing.assert_array_equal(pixels, [[[255, 255, 255], [10, 20, 30]]])


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("L", "PNG"), ("LA", "PNG"), ("1", "PNG"), ("P", "GIF"), ("CMYK", "JPEG")],
)
def test_every_mode_becomes_rgb(mode, kind):
    image = Image.new("RGB", (8, 8), "white").convert(mode)
    photo = load_photo(as_file(image, kind))
    assert photo.mode == "RGB"
    assert np.asarray(photo).min() > 250


def test_a_palette_keeps_its_colours_and_its_transparency():
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    pixels = np.asarray(load_photo(as_file(image, transparency=1)))
    np.testing.assert_array_equal(pixels, [[[255, 0, 0], [255, 255, 255]]])


def test_damaged_photos_are_refused_in_one_line(tmp_path):
    whole = as_file(Image.new("RGB", (64, 64), "red"), "JPEG").getvalue()
    for name, content in {"cut.jpg": whole[:300], "text.jpg": b"x", "": b""}.items():
        path = tmp_path / (name or "empty.jpg")
        path.write_bytes(content)
        with pytest.raises(PhotoError, match="cannot be read") as caught:
            load_photo(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_absent_photo_is_named():
    with pytest.raises(PhotoError, match=r"gone\.jpg: no such photo"):
        load_photo("gone.jpg")


def test_a_photo_of_too_many_pixels_is_refused(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(PhotoError, match="cannot be read"):
        load_photo(as_file(Image.new("RGB", (8, 8))))


@pytest.mark.parametrize(
    ("size", "resize", "expected"),
    [
        ((1000, 500), "squash", (512, 256)),
        ((500, 1000), "squash", (256, 512)),
        ((1000, 500), "crop", (438, 438)),  # 7/8 of the shortest side
        ((80, 60), "squash", (80, 60)),  # never enlarged
        ((4000, 2), "squash", (512, 1)),
    ],
)
def test_a_view_keeps_the_proportions_and_stays_small(size, resize, expected):
    view = to_view(Image.new("RGB", size), 224, resize, 512)
    assert view.shape[1::-1] == pytest.approx(expected, abs=1)
    assert view.dtype == np.uint8


@pytest.mark.parametrize("suffix", sorted(PHOTO_SUFFIXES))
def test_every_suffix_of_photos_is_found_everywhere_and_can_be_decoded(
    tmp_path, suffix
):
    path = tmp_path / f"photo{suffix.upper()}"
    Image.new("RGB", (8, 8), "red").save(path)
    assert load_photo(path).size == (8, 8)
    assert list(find_photos([tmp_path])) == [path]
    data = DataFolder(tmp_path, leave_out=tmp_path / "prepared")
    assert data.photos == {path.name: path}
