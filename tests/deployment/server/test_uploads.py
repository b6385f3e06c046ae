"""Uploads: limits, formats by content, decompression bombs."""

import pytest
from hostile_photos import png
from pictures import image_bytes
from PIL import Image, PngImagePlugin
from refusals import refused
from starlette.exceptions import HTTPException

from show_attend_tell.deployment.server import uploads
from show_attend_tell.deployment.server.uploads import open_upload


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(uploads, "MEGABYTES", 1)
    monkeypatch.setattr(uploads, "MEGAPIXELS", 1)


def encoded(kind="PNG", size=(20, 10), **options):
    return image_bytes(Image.new("RGB", size, "red"), kind, **options)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_the_format_is_that_of_the_content(kind):
    image = open_upload(encoded(kind))
    assert (image.mode, image.size) == ("RGB", (20, 10))


OTHERS = [
    b"",
    b"GIF89a",
    b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    encoded()[:60],
    encoded("JPEG", (300, 300))[:500],
]
SIDES = (1001, 10_000, 30_000, 50_000, 2_000_000_000)
BOMBS = [png(side, side, b"\0" * 1000) for side in SIDES]


@pytest.mark.parametrize(
    ("content", "message", "status"),
    [(content, "must be a photo", 415) for content in OTHERS]
    + [(content, "at most 1 megapixels", 413) for content in BOMBS],
)
def test_other_content_and_bombs_are_refused_before_decoding_in_one_line(
    content, message, status
):
    with refused(HTTPException, message) as caught:
        open_upload(content)
    assert caught.value.status_code == status


class DecoderError(Exception):
    """An error of a class that no list of errors names."""


@pytest.mark.parametrize("method", ["verify", "load"])
def test_any_error_of_a_decoder_is_a_refusal(monkeypatch, method):
    def fail(image):
        raise DecoderError("three\nlines\nof text")

    monkeypatch.setattr(PngImagePlugin.PngImageFile, method, fail)
    with refused(HTTPException, "three lines of text; choose") as caught:
        open_upload(encoded())
    assert caught.value.status_code == 415


def test_formats_that_are_not_named_are_refused():
    for kind in ("PPM", "ICO", "TGA", "PCX", "SGI", "DDS"):
        with pytest.raises(HTTPException, match="no known image format"):
            open_upload(encoded(kind))
