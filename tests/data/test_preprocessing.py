"""Decoding, resizing and geometry, against Pillow and computation by hand."""

import io
import os
import random
import re
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from hostile_photos import OTHERS, exif_blocks, many_scans
from hypothesis import given
from hypothesis import strategies as st
from pictures import image_bytes
from PIL import Image, TiffImagePlugin
from refusals import refused

from data_prep.data_folder import DataFolder
from show_attend_tell.data import photo_faults, preprocessing
from show_attend_tell.data.preprocessing import (
    PHOTO_FORMATS,
    PHOTO_SUFFIXES,
    box_to_square,
    is_raw,
    load_photo,
    remedy,
    seen_region,
    to_square,
    to_view,
)
from show_attend_tell.inference.photos import find_photos
from show_attend_tell.runtime.errors import PhotoError

SIZES = st.tuples(st.integers(20, 900), st.integers(20, 900))
KINDS = st.sampled_from(["crop", "squash"])


def as_file(image: Image.Image, kind: str = "PNG", **options) -> io.BytesIO:
    return io.BytesIO(image_bytes(image, kind, **options))


def noise(rng, height: int, width: int) -> Image.Image:
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (many_scans(64, 3000), "at most 100 scans. Received: 3"),
        (as_file(Image.new("L", (1, 65_536))).read(), "at most 65535 pixels"),
        (as_file(Image.new("L", (65_536, 1))).read(), "at most 65535 pixels"),
    ],
)
def test_photos_that_are_small_but_costly_are_refused(tmp_path, content, fault):
    (tmp_path / "photo").write_bytes(content)
    for photo in (io.BytesIO(content), tmp_path / "photo"):
        with pytest.raises(PhotoError, match=fault):
            load_photo(photo)
    for scans in (1, 20):
        assert load_photo(io.BytesIO(many_scans(64, scans))).size == (64, 64)


def jpeg_segment(kind: int, content: bytes) -> bytes:
    return bytes([0xFF, kind]) + struct.pack(">H", len(content) + 2) + content


def test_scans_are_counted_up_to_the_end_of_the_picture_alone():
    jpeg = as_file(Image.new("RGB", (64, 64), "red"), "JPEG", restart_marker_rows=1)
    jpeg = jpeg.getvalue()
    markers = b"\xff\xda" * 200
    second = Image.new("RGB", (64, 64))
    cases = {
        "a video": jpeg + b"\0\0\0\x18ftypmp42" + markers,
        "a comment": jpeg[:2] + jpeg_segment(0xFE, markers) + jpeg[2:],
        "a thumbnail": jpeg[:2] + jpeg_segment(0xE1, b"Exif\0\0" + markers) + jpeg[2:],
        "a second picture": as_file(
            Image.new("RGB", (64, 64)), "MPO", save_all=True, append_images=[second] * 2
        ).getvalue()
        + markers,
    }
    for content in cases.values():
        assert load_photo(io.BytesIO(content)).size == (64, 64)


def test_no_segment_hides_the_scans_of_a_jpeg():
    jpeg = many_scans(64, 120)
    hidden = {
        # libjpeg skips a marker below C0 among compressed data, not what follows it.
        "a reserved marker": b"\xff\x05\x7f\x7f",
        "a start of image": b"\xff\xd8\x7f\x7f",
        "a restart": b"\xff\xd0\x7f\x7f",
        "fill bytes": b"\xff" * 9 + b"\0",
    }
    start = jpeg.index(b"\xff\xda") + 40
    for content in hidden.values():
        with pytest.raises(PhotoError, match="at most 100 scans"):
            load_photo(io.BytesIO(jpeg[:start] + content + jpeg[start:]))


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


@given(SIZES, KINDS, st.sampled_from([14, 56, 224]))
def test_the_seen_region_is_inside_the_photo_and_maps_to_the_square(size, kind, side):
    x0, y0, x1, y1 = seen_region(size, side, kind)
    assert 0 <= x0 < x1 <= size[0]
    assert 0 <= y0 < y1 <= size[1]
    square = box_to_square((x0, y0, x1, y1), size, side, kind)
    np.testing.assert_allclose(square, (0, 0, side, side), atol=1e-9)


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


@pytest.mark.parametrize("kind", ["JPEG", "HEIF"])
def test_photos_are_decoded_upright(kind):
    if kind == "HEIF":
        pytest.importorskip("pillow_heif", reason="needs the extra [heic]")
    pixels = np.zeros((64, 128, 3), np.uint8)
    pixels[:, :64] = (255, 0, 0)
    rotated = Image.Exif()
    rotated[0x0112] = 6  # the left side is shown at the top
    for exif, size, red in (
        (Image.Exif(), (128, 64), np.s_[:, :60]),
        (rotated, (64, 128), np.s_[:60]),
    ):
        image = Image.fromarray(pixels)
        photo = load_photo(as_file(image, kind, quality=95, exif=exif.tobytes()))
        assert photo.size == size
        half = np.asarray(photo, float)[red]
        np.testing.assert_allclose(half.mean((0, 1)), (255, 0, 0), atol=12)


def palette():
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    return image


TRANSPARENT = np.uint8([[[0, 0, 0, 0], [10, 20, 30, 255]]])


@pytest.mark.parametrize(
    ("image", "options", "pixels"),
    [
        (Image.fromarray(np.uint16([[0, 32896, 65535]])), {}, [[0] * 3, [128] * 3]),
        (Image.fromarray(TRANSPARENT), {}, [[255] * 3, [10, 20, 30]]),
        (palette(), {"transparency": 1}, [[255, 0, 0], [255] * 3]),
    ],
    ids=["sixteen bits", "transparency", "a palette"],
)
def test_colours_become_eight_bits_and_transparency_white(image, options, pixels):
    photo = load_photo(as_file(image, **options))
    np.testing.assert_array_equal(np.asarray(photo)[0, :2], pixels)


@pytest.mark.parametrize(
    ("levels", "kind"),
    [
        (np.float32([[0, 0.5, 1]]), "TIFF"),
        (np.float32([[0, 127.5, 255]]), "TIFF"),
        (np.float32([[0, 32767.5, 65535]]), "TIFF"),
        (np.float32([[-0.02, 0.5, 1.05]]), "TIFF"),  # resized: it overshoots
        (np.float32([[np.nan, 0.5, 1]]), "TIFF"),
        (np.int32([[0, 128, 255]]), "TIFF"),
        (np.int32([[0, 32768, 65535]]), "TIFF"),
        (np.int32([[0, 2**30, 2**31 - 1]]), "TIFF"),
        (np.uint16([[0, 32768, 65535]]), "TIFF"),
        (np.uint16([[0, 32768, 65535]]), "PNG"),
        (np.uint16([[0, 32768, 65535]]), "PPM"),
    ],
)
def test_levels_of_every_scale_become_eight_bits(levels, kind):
    photo = load_photo(as_file(Image.fromarray(levels), kind))
    assert np.asarray(photo)[0, :, 0].tolist() == [0, 128, 255]


def test_a_dark_picture_of_sixteen_bits_stays_dark():
    levels = np.uint16([[0, 200, 255]])
    for kind in ("TIFF", "PNG"):
        assert np.asarray(load_photo(as_file(Image.fromarray(levels), kind))).max() == 1


@pytest.mark.parametrize("largest", [1e9, np.inf])
def test_levels_of_no_known_scale_are_refused(largest):
    levels = Image.fromarray(np.float32([[0, largest]]))
    with refused(PhotoError, "of no known scale; export it with 8 or 16 bits"):
        load_photo(as_file(levels, "TIFF"))


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("L", "PNG"), ("LA", "PNG"), ("1", "PNG"), ("P", "GIF"), ("CMYK", "JPEG")],
)
def test_every_mode_becomes_rgb(mode, kind):
    image = Image.new("RGB", (8, 8), "white").convert(mode)
    photo = load_photo(as_file(image, kind))
    assert photo.mode == "RGB"
    assert np.asarray(photo).min() > 250


def test_absent_and_damaged_photos_are_refused_in_one_line(tmp_path):
    with refused(PhotoError, r"gone\.jpg: no such photo"):
        load_photo("gone.jpg")
    whole = as_file(Image.new("RGB", (64, 64), "red"), "JPEG").getvalue()
    for name, content in {"cut.jpg": whole[:300], "text.jpg": b"x", "": b""}.items():
        path = tmp_path / (name or "empty.jpg")
        path.write_bytes(content)
        with refused(PhotoError, "cannot be read") as caught:
            load_photo(path)
        assert str(path) in str(caught.value)


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
    data = DataFolder(tmp_path, tmp_path / "prepared")
    assert data.photos == {path.name: path}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_photo_with_malformed_exif_keeps_its_pixels(kind, recwarn):
    image = Image.new("RGB", (40, 20), "red")
    start = b"Exif\0\0II*\0\x08\0\0\0"
    at_random = (start + random.Random(k).randbytes(90) for k in range(60))
    for exif in (*exif_blocks(), *at_random):
        photo = load_photo(as_file(image, kind, exif=exif))
        assert sorted(photo.size) == [20, 40]
        assert np.asarray(photo)[..., 0].min() > 240
    assert not recwarn.list


@pytest.mark.parametrize("kind", ["eps", "eps with a DOS header", "pdf", "wmf"])
def test_files_that_need_another_program_are_never_decoded(tmp_path, kind):
    path = tmp_path / "photo.jpg"
    path.write_bytes(OTHERS[kind].ljust(600, b"\0"))
    with pytest.raises(PhotoError, match="unknown image format"):
        load_photo(path)


def test_the_list_of_formats_is_closed_and_known_to_pillow():
    Image.init()
    assert set(PHOTO_FORMATS) <= set(Image.OPEN)
    assert not {"EPS", "PDF", "WMF", "EMF", "PSD"} & set(PHOTO_FORMATS)


@pytest.mark.parametrize("kind", PHOTO_FORMATS)
def test_damaged_photos_of_every_format_are_decoded_or_refused(kind, recwarn):
    whole = as_file(Image.linear_gradient("L").convert("RGB"), kind).getvalue()
    rng = random.Random(kind)
    refused = []
    for number in range(120):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 8])):
            data[rng.randrange(min(len(data), 400))] = rng.randrange(256)
        if number % 4 == 0:
            del data[rng.randrange(len(data)) :]
        try:
            load_photo(io.BytesIO(data))
        except PhotoError as error:
            refused.append(str(error))
    assert refused
    assert max(map(len, refused)) < 300
    assert not any("\n" in line for line in refused)
    assert not recwarn.list


@pytest.mark.parametrize(
    "error", [RuntimeError, NotImplementedError, ZeroDivisionError, KeyError, TypeError]
)
def test_every_error_of_a_decoder_is_a_refusal(monkeypatch, error):
    fail = mock.Mock(side_effect=error("first line\nsecond line" + "x" * 1000))
    monkeypatch.setattr(Image.Image, "convert", fail)
    with refused(PhotoError):
        load_photo(as_file(Image.new("RGB", (8, 8))))


@pytest.mark.timeout(20)
def test_pipes_and_devices_are_refused_and_never_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    (tmp_path / "link.jpg").symlink_to("pipe.jpg")
    for path in tmp_path.iterdir():
        with pytest.raises(PhotoError, match=r"\.jpg: .*not a regular file"):
            load_photo(path)


def test_warnings_are_ignored_while_threads_decode_and_not_afterwards(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)  # 64 pixels cause a warning
    content = as_file(Image.new("RGB", (8, 8))).getvalue()
    before = list(warnings.filters)
    with ThreadPoolExecutor(4) as pool:
        photos = pool.map(load_photo, [io.BytesIO(content) for _ in range(120)])
        assert {photo.size for photo in photos} == {(8, 8)}
    assert warnings.filters == before
    with pytest.warns(Image.DecompressionBombWarning):
        Image.open(io.BytesIO(content))


def test_log_lines_of_pillow_are_ignored_while_a_photo_is_decoded(caplog):
    content = bytearray(as_file(Image.new("RGB", (8, 8)), "TIFF").getvalue())
    entry = content.index(struct.pack("<HHI", 277, 3, 1))  # samples per pixel
    content[entry + 8 : entry + 10] = struct.pack("<H", 2048)
    with pytest.raises(PhotoError):
        load_photo(io.BytesIO(content))
    assert not caplog.records
    with pytest.raises(SyntaxError):
        TiffImagePlugin.TiffImageFile(io.BytesIO(content))
    assert "samples per pixel" in caplog.text


def test_photos_that_cannot_be_decoded_have_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(preprocessing, "PHOTO_SUFFIXES", frozenset([".jpg"]))
    assert "show-attend-tell[heic]" in remedy("A.HEIC")
    assert "upgrade pillow" in remedy("a.avif")
    assert "JPEG" in remedy("a.CR2")
    assert "JPEG" in remedy("a.jxl")
    assert remedy("a.jpg") == remedy("a.txt") == remedy("heic") == ""
    (tmp_path / "a.heif").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    with pytest.raises(PhotoError, match=r"a.heif: .*show-attend-tell\[heic\]"):
        load_photo(tmp_path / "a.heif", formats=("JPEG",))


def test_raw_photos_are_listed_unless_a_photo_of_the_name_is_beside(tmp_path):
    for name in ("a.CR2", "b.dng"):
        (tmp_path / name).write_bytes(b"II*\0")
        assert is_raw(name)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    photo, failure = find_photos([tmp_path])
    assert photo == tmp_path / "a.jpg"
    assert failure.reason.startswith(f"{tmp_path / 'b.dng'}: raw photos cannot be read")


def fault_of(content: bytes) -> str:
    with refused(PhotoError, "cannot be read as a photo: ") as caught:
        load_photo(io.BytesIO(content))
    return str(caught.value).partition("as a photo: ")[2]


NOISE = noise(np.random.default_rng(5), 200, 300)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP", "AVIF", "HEIF"])
def test_a_photo_that_is_cut_off_says_how_much_is_missing(kind):
    if kind not in PHOTO_FORMATS:
        pytest.skip("this Pillow has no such format")
    whole = as_file(NOISE, kind).getvalue()
    for share in (0.25, 0.5, 0.75):
        fault = fault_of(whole[: round(len(whole) * (1 - share))])
        pattern = r"the file ends early, (?:the lower )?(\d+)% of (?:it|the picture) is"
        found = re.match(pattern, fault)
        assert found, fault
        assert int(found[1]) == pytest.approx(100 * share, abs=6)
        assert fault.endswith("missing; copy it again from its source")


@pytest.mark.parametrize("kind", ["TIFF", "GIF", "PPM", "JPEG2000"])
def test_other_photos_that_are_cut_off_say_so(kind):
    whole = as_file(NOISE, kind).getvalue()
    fault = fault_of(whole[: len(whole) // 2])
    assert fault.startswith("the file ends early or is damaged; copy it again")


def test_a_progressive_jpeg_that_is_cut_off_says_so():
    whole = as_file(NOISE, "JPEG", progressive=True).getvalue()
    assert fault_of(whole[: len(whole) // 2]).startswith("the file ends early or is")


def test_a_photo_that_is_too_costly_is_not_decoded_for_its_message(monkeypatch):
    decode = mock.Mock()
    monkeypatch.setattr(photo_faults, "_missing_share", decode)
    assert "at most 100 scans" in fault_of(many_scans(64, 3000))
    long = as_file(Image.new("L", (65_536, 1)), "PNG").getvalue()
    assert "at most 65535 pixels" in fault_of(long)
    assert not decode.called


def test_empty_files_and_zeros_are_named():
    assert fault_of(b"").startswith("the file is empty")
    assert "nothing but zeros" in fault_of(bytes(5000))
    assert fault_of(b"no photo") == "unknown image format"


def test_a_panorama_has_its_pixels_in_the_message():
    header = bytearray(as_file(Image.new("L", (1, 1)), "JPEG").getvalue())
    size = header.index(b"\xff\xc0") + 5
    header[size : size + 4] = struct.pack(">HH", 15_000, 20_000)
    fault = fault_of(bytes(header))
    assert fault == (
        "it has 300 megapixels, and at most 179 are read; save a smaller copy"
    )
