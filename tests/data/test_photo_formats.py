"""Formats of photos: what is decoded, and the remedy for others."""

import io

import numpy as np
import pytest
from PIL import Image

from show_attend_tell.data import photo_formats
from show_attend_tell.data.photo_formats import is_raw, remedy
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.inference.photos import find_photos
from show_attend_tell.runtime.errors import PhotoError


def test_photos_that_cannot_be_decoded_have_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(photo_formats, "PHOTO_SUFFIXES", frozenset([".jpg"]))
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


def test_heic_is_decoded_upright():
    pytest.importorskip("pillow_heif", reason="needs the extra [heic]")
    pixels = np.zeros((64, 128, 3), np.uint8)
    pixels[:, :64] = (255, 0, 0)
    rotated = Image.Exif()
    rotated[0x0112] = 6  # the left side is shown at the top
    for exif, size, red in ((Image.Exif(), (128, 64), 0), (rotated, (64, 128), 1)):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "HEIF", quality=95, exif=exif.tobytes())
        file.seek(0)
        photo = load_photo(file)
        assert photo.size == size
        half = np.asarray(photo, float) if red else np.asarray(photo, float)[:, :64]
        half = half[:64] if red else half
        np.testing.assert_allclose(half.mean((0, 1)), (255, 0, 0), atol=12)
