"""Uploads: limits, formats by content, decompression bombs."""

import io

import pytest
from hostile_photos import png
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
    buffer = io.BytesIO()
    Image.new("RGB", size, "red").save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_the_format_is_that_of_the_content(kind):
    image = open_upload(encoded(kind))
    assert (image.mode, image.size) == ("RGB", (20, 10))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GIF89a",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        encoded()[:60],
        encoded("JPEG", (300, 300))[:500],
    ],
)
def test_other_content_is_refused_in_one_line(content):
    with refused(HTTPException, "must be a photo") as caught:
        open_upload(content)
    assert caught.value.status_code == 415


@pytest.mark.parametrize("side", [1001, 10_000, 30_000, 50_000, 2_000_000_000])
def test_bombs_are_refused_before_they_are_decoded(side):
    with refused(HTTPException, "at most 1 megapixels") as caught:
        open_upload(png(side, side, b"\0" * 1000))
    assert caught.value.status_code == 413


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
