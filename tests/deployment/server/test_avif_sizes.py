"""Sizes of AVIF files: those of the stream count, whatever the container states."""

import contextlib
import io
import random
import struct
import time

import numpy as np
import pytest
from hostile_photos import avif
from PIL import Image

from show_attend_tell.data.preprocessing import HAS_AVIF
from show_attend_tell.deployment.server.avif_sizes import AvifError, avif_sizes

pytestmark = pytest.mark.skipif(not HAS_AVIF, reason="this Pillow has no AVIF")


def encoded(size, mode="RGB", **options):
    content = io.BytesIO()
    Image.new(mode, size).save(content, "AVIF", speed=10, **options)
    return content.getvalue()


def box(kind, *content):
    content = b"".join(content)
    return struct.pack(">I4s", 8 + len(content), kind) + content


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (640, 480), (3000, 2000)])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
def test_the_sizes_are_those_of_the_picture_and_its_opacity(size, mode):
    found = avif_sizes(encoded(size, mode))
    assert set(found) == {size}
    assert len(found) >= (3 if mode == "RGBA" else 2)


@pytest.mark.parametrize("options", [{"subsampling": "4:4:4"}, {"quality": 100}])
def test_the_sizes_do_not_depend_on_the_encoding(options):
    assert set(avif_sizes(encoded((640, 480), **options))) == {(640, 480)}


def test_the_stream_tells_what_the_container_hides():
    content = bytearray(encoded((900, 700)))
    at = content.index(b"ispe") + 8
    content[at : at + 8] = struct.pack(">II", 10, 10)
    assert Image.open(io.BytesIO(content)).size == (10, 10)
    assert set(avif_sizes(bytes(content))) == {(10, 10), (900, 700)}


def test_a_stream_with_operating_points_is_read():
    frames = [Image.new("RGB", (50, 30), colour) for colour in ("red", "blue")]
    content = io.BytesIO()
    frames[0].save(content, "AVIF", save_all=True, append_images=frames[1:])
    with pytest.raises(AvifError, match="an animation"):
        avif_sizes(content.getvalue())
    still = content.getvalue().replace(b"moov", b"free")
    assert set(avif_sizes(still)) == {(50, 30)}


def test_damage_is_an_error_of_the_file():
    rng = random.Random(1)
    whole = avif(48, 36)
    for _ in range(3000):
        content = bytearray(whole)
        for _ in range(rng.choice([1, 2, 5])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        with contextlib.suppress(AvifError):
            avif_sizes(bytes(content))
    for end in range(len(whole)):
        with contextlib.suppress(AvifError):
            avif_sizes(whole[:end])


FTYP = box(b"ftyp", b"avif\0\0\0\0avifmif1")
ITEM = box(b"infe", b"\2\0\0\0\0\1\0\0av01\0")
ITEMS = box(b"iinf", b"\0\0\0\0\0\1", ITEM)


def with_meta(*content):
    return FTYP + box(b"meta", bytes(4), *content)


def extents(count, length, start=0):
    """Return a table of one item, which is some bytes of the file, several times."""
    one = struct.pack(">II", start, length)
    head = b"\0\0\0\0\x44\x00" + struct.pack(">HHHH", 1, 1, 0, count)
    return box(b"iloc", head, one * count)


START = len(with_meta(ITEMS, extents(1, 0)))
HOSTILE = {
    "too many boxes": FTYP + box(b"free") * 2_000_000,
    "overlap": with_meta(ITEMS, extents(8000, 10**6)) + bytes(10**6),
    "too many items": with_meta(ITEMS, box(b"iloc", bytes(10**6))),
    "too many parts": with_meta(ITEMS, extents(1, 0, START)) + bytes([2, 0]) * 10**6,
    "two boxes iloc": with_meta(ITEMS, extents(1, 9), extents(1, 9)),
    "end early": with_meta(ITEMS, extents(1, 0, START)) + b"\x0a\xff\xff\x7f\0",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_costs_little_time(name):
    start = time.process_time()
    with pytest.raises(AvifError, match=name):
        avif_sizes(HOSTILE[name])
    assert time.process_time() - start < 1


def test_random_pixels_are_read():
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "AVIF")
    assert set(avif_sizes(content.getvalue())) == {(80, 60)}
