"""Uploads: limits, formats by content, decompression bombs."""

import re
import socket
import tempfile

import numpy as np
import pytest
from hostile_photos import avif, png
from pictures import image_bytes
from PIL import Image, PngImagePlugin, TiffImagePlugin
from refusals import refused
from served import post, serving_app
from starlette.exceptions import HTTPException

from show_attend_tell.data.preprocessing import HAS_AVIF
from show_attend_tell.deployment.server import middleware, uploads
from show_attend_tell.deployment.server.app import create_app
from show_attend_tell.deployment.server.uploads import open_upload


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(uploads, "MEGABYTES", 1)
    monkeypatch.setattr(uploads, "MEGAPIXELS", 1)


def encoded(kind="PNG", size=(20, 10), **options):
    return image_bytes(Image.new("RGB", size, "red"), kind, **options)


@pytest.mark.parametrize("kind", uploads.FORMATS)
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
if HAS_AVIF:
    OTHERS += [encoded("AVIF")[:200], encoded("AVIF", (300, 300))[:-9]]
    BOMBS += [avif(side, side) for side in SIDES]


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


def test_a_raw_photo_is_refused_as_one():
    directory = TiffImagePlugin.ImageFileDirectory_v2()
    directory[50_706] = b"\1\4\0\0"  # DNGVersion
    reason = r"Received: \d+ bytes, raw photos cannot be read; export it as JPEG"
    with refused(HTTPException, reason):
        open_upload(encoded("TIFF", tiffinfo=directory))


@pytest.mark.skipif(not HAS_AVIF, reason="this Pillow has no AVIF")
def test_an_avif_file_that_hides_its_size_is_refused():
    content = bytearray(encoded("AVIF", (1100, 1000)))
    at = content.index(b"ispe") + 8
    content[at : at + 8] = (10).to_bytes(4, "big") * 2
    with refused(HTTPException, "Received: 1100 x 1000 pixels") as caught:
        open_upload(bytes(content))
    assert caught.value.status_code == 413


@pytest.mark.skipif(not HAS_AVIF, reason="this Pillow has no AVIF")
def test_many_pictures_in_an_avif_file_are_refused(monkeypatch):
    monkeypatch.setattr(uploads, "avif_sizes", lambda content: [(1000, 1000)] * 7)
    with refused(HTTPException, "7 pictures of 7000000 pixels") as caught:
        open_upload(encoded("AVIF"))
    assert caught.value.status_code == 413


@pytest.mark.skipif(not HAS_AVIF, reason="this Pillow has no AVIF")
def test_an_animation_in_avif_is_named():
    frames = [Image.new("RGB", (20, 10), colour) for colour in ("red", "blue")]
    content = image_bytes(frames[0], "AVIF", save_all=True, append_images=frames[1:])
    with refused(HTTPException, "an animation; send one picture"):
        open_upload(content)


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


def test_a_photo_that_is_cut_off_says_how_much_is_missing():
    pixels = np.random.default_rng(1).integers(0, 256, (80, 60, 3), np.uint8)
    whole = image_bytes(Image.fromarray(pixels), "JPEG")
    with pytest.raises(HTTPException) as caught:
        open_upload(whole[: len(whole) // 2])
    assert caught.value.status_code == 415
    found = r"the file ends early, the lower \d\d% of the picture is missing"
    assert re.search(found, caught.value.detail)


def test_formats_that_are_not_named_are_refused():
    for kind in ("PPM", "ICO", "TGA", "PCX", "SGI", "DDS"):
        with pytest.raises(HTTPException, match="unknown image format"):
            open_upload(encoded(kind))


@pytest.fixture
def large_limits(monkeypatch):
    monkeypatch.setattr(uploads, "MEGABYTES", 20)
    monkeypatch.setattr(uploads, "MEGAPIXELS", 50)


@pytest.fixture
def phone_photo(rng):
    """A photo above 1 MB, as those of phones."""
    pixels = rng.integers(0, 256, (700, 900, 3), np.uint8)
    content = image_bytes(Image.fromarray(pixels), "PNG")
    assert len(content) > 1_500_000
    return content


def test_large_photos_need_no_temporary_folder(
    pipeline, phone_photo, large_limits, monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with serving_app(create_app({"tiny": pipeline})) as (address, _):
        reply = post(address, content=phone_photo)
    assert reply.status_code == 200
    assert reply.json()["photo"] == "p.png"


def test_bodies_together_are_limited_and_small_ones_go_on(
    pipeline, phone_photo, large_limits, monkeypatch
):
    monkeypatch.setattr(middleware, "MAX_HELD", 1_500_000)
    with serving_app(create_app({"tiny": pipeline})) as (address, _):
        reply = post(address, content=phone_photo)
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "5")
        assert reply.json()["error"].startswith("busy with other photos")
        assert post(address).status_code == 200
        monkeypatch.setattr(middleware, "MAX_HELD", len(phone_photo) + 1000)
        for _ in range(3):  # what is held is let go
            assert post(address, content=phone_photo).status_code == 200


@pytest.mark.parametrize(
    ("megabytes", "path"),
    [(300, "caption"), (2, "api/generate"), (2, "v1/responses")],
)
def test_a_refusal_of_a_large_body_arrives_whole(address, megabytes, path):
    """Its client reads nothing before it has sent everything."""
    port = int(address.rpartition(":")[2])
    length = megabytes * 1_000_000
    head = (
        f"POST /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(head.encode())
        for _ in range(megabytes):
            connection.sendall(bytes(1_000_000))
        found = b""
        while piece := connection.recv(10_000):
            found += piece
    assert found.startswith(b"HTTP/1.1 413 ")
    assert b"`photo` must have at most 1 MB. Received: more" in found
