"""Photos that are damaged, mislabelled, huge or of unusual kinds."""

import functools
import random
import struct
import zlib
from collections.abc import Iterator

import mutations
import numpy as np
from pictures import image_bytes
from PIL import Image
from world import photo_bytes

from show_attend_tell.data.preprocessing import HAS_AVIF

FORMATS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "BMP": "bmp"}
FORMATS |= {"TIFF": "tif", "AVIF": "avif"}
_MODES = {
    "png": ["1", "L", "LA", "P", "PA", "RGBA", "I;16"],
    "jpg": ["L", "CMYK"],
    "webp": ["RGBA", "L"],
    "gif": ["1", "L", "P"],
    "bmp": ["1", "L", "P"],
    "tif": ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "LAB", "I;16", "I", "F"],
}
_EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 20 20
%%EndComments
(outside) (w) file closefile
%%EOF
"""
# Files of other kinds under the name of a photo.
OTHERS = {
    "empty": b"",
    "one byte": b"\xff",
    "text": b"no photo at all\n" * 50,
    "html": b"<html><img src='http://127.0.0.1:1/'></html>",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
    "eps": _EPS,
    "eps with a DOS header": b"\xc5\xd0\xd3\xc6"
    + struct.pack("<II", 30, len(_EPS))
    + bytes(18)
    + _EPS,
    "ps": _EPS.replace(b" EPSF-3.0", b""),
    "pdf": b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF",
    "wmf": b"\xd7\xcd\xc6\x9a" + bytes(60),
    "emf": b"\x01\0\0\0" + bytes(36) + b" EMF" + bytes(60),
    "zip": b"PK\x05\x06" + bytes(18),
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(60),
    "fits": b"SIMPLE  =                    T".ljust(80) + b"END".ljust(2800),
    "heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200),
    "avif header": b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf" + bytes(200),
    "dds": b"DDS " + struct.pack("<IIIII", 124, 0x1007, 16, 16, 64) + bytes(104),
    "dds of an unknown code": b"DDS "
    + struct.pack("<IIIII", 124, 0x1007, 16, 16, 64)
    + bytes(52)
    + struct.pack("<II4s", 32, 4, b"DX10")
    + bytes(60),
    "psd": b"8BPS\0\x01" + bytes(6) + struct.pack(">HIIHH", 3, 9, 9, 8, 3) + bytes(60),
    "ico": b"\0\0\1\0\1\0\x10\x10\0\0\1\0\x20\0" + struct.pack("<II", 9999, 22),
    "icns": b"icns" + struct.pack(">I", 16) + b"ic07" + struct.pack(">I", 8),
    "jpeg 2000": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(60),
    "pcx": b"\x0a\x05\x01\x08" + bytes(124),
    "sgi": b"\x01\xda\x01\x01\0\x03" + bytes(506),
    "tga": bytes(2)
    + b"\x02"
    + bytes(9)
    + struct.pack("<HHBB", 4, 4, 24, 0)
    + bytes(48),
    "xbm": b"#define a_width 9\n#define a_height 9\nstatic char a_bits[] = {0};",
    "ppm": b"P6 4 4 255\n" + bytes(48),
    "ppm of 10^12 pixels": b"P6 1000000 1000000 255\n",
    "qoi": b"qoif" + struct.pack(">IIBB", 100000, 100000, 4, 0),
    "blp": b"BLP2" + struct.pack("<iBBBB", 1, 9, 9, 9, 9) + bytes(200),
    "im": b"Image type: L image\r\nImage size (x*y): 4*4\r\n".ljust(511, b"\0")
    + b"\x1a",
    "mpeg": b"\0\0\x01\xb3" + bytes(20),
    "script": b"#!/bin/sh\ntouch outside\n",
    "elf": b"\x7fELF" + bytes(100),
    "random": random.Random(3).randbytes(4000),
}
NAMES = (
    *(b"cr\rname", b"lf\nname", b"crlf\r\nname", b"quote\"'name", b"comma,name"),
    *(b"caf\xe9", b"\xff\xfe", "\U0001f600".encode(), b"-dash", b"--help", b" space "),
    *(b"<script>", b"%s%n", b"$(touch outside)", b"a\tb", b"x" * 240),
    *("\u202egpj".encode(), "\u0301".encode(), b"\x1b[31mred", b"=cmd|x", b"\x7f"),
    *("\u2028line".encode(), b"a\x85b", "\x85".encode(), b"\x0b\x0c", b"*?[", b"{}"),
)


def png(width: int, height: int, body: bytes = b"") -> bytes:
    """Return a PNG whose header promises a size, whatever its body is."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(body))
        + chunk(b"IEND", b"")
    )


def avif(width: int, height: int) -> bytes:
    """Return an AVIF file whose header promises a size, whatever its picture is."""
    content = bytearray(photo_bytes(1, "AVIF"))
    at = content.index(b"ispe") + 8
    content[at : at + 8] = struct.pack(">II", width, height)
    return bytes(content)


def bombs() -> dict[str, bytes]:
    """Return files whose headers promise very many pixels."""
    jpeg = bytearray(photo_bytes(1))
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = struct.pack(">HH", 50_000, 50_000)
    gif = bytearray(photo_bytes(1, "GIF"))
    gif[6:10] = struct.pack("<HH", 65535, 65535)
    bmp = bytearray(photo_bytes(1, "BMP"))
    bmp[18:26] = struct.pack("<ii", 60_000, 60_000)
    others = {}
    if HAS_AVIF:
        others = {
            "bomb.avif": avif(50_000, 50_000),
            "bomb-80-mp.avif": avif(10_000, 8000),
        }
    return others | {
        "bomb.png": png(50_000, 50_000),
        "bomb-2-31.png": png(2**31 - 1, 2**31 - 1),
        "bomb-100-mp.png": png(10_000, 10_000, bytes(100_010_000)),
        "bomb-170-mp.png": png(13_000, 13_100),
        "bomb.jpg": bytes(jpeg),
        "bomb.gif": bytes(gif),
        "bomb.bmp": bytes(bmp),
        "bomb-wide.png": png(40_000_000, 1, bytes(40_000_001)),
        "bomb-high.png": png(1, 40_000_000, bytes(80_000_000)),
        "long.png": png(1_000_000, 1, bytes(1_000_001)),
    }


def many_scans(side: int, scans: int) -> bytes:
    """Return a progressive JPEG whose last scan is repeated."""
    jpeg = photo_bytes(1, size=(side, side), progressive=True)
    start, end = jpeg.rfind(b"\xff\xda"), jpeg.rfind(b"\xff\xd9")
    return jpeg[:start] + jpeg[start:end] * scans + jpeg[end:]


def exif_blocks() -> Iterator[bytes]:
    """Yield EXIF blocks that are junk, cut, circular, or of wrong types."""
    good = Image.Exif()
    good[0x0112] = 6
    whole = good.tobytes()
    yield b"Exif\0\0junk" * 9
    yield b""
    yield b"II*\0\xff\xff\xff\xff"
    yield whole[: len(whole) // 2]
    yield whole[:-3]
    yield b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + bytes(30)
    one = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01"  # one entry, the orientation
    yield one + b"\x02\0\xff\xff\xff\x7f\x08\0\0\0\x08\0\0\0"
    yield one + b"\x05\0\x01\0\0\0\x00\0\0\0\x08\0\0\0"
    yield one + b"\x03\0\x01\0\0\0\x63\0\0\0\0\0\0\0"
    yield b"Exif\0\0" + random.Random(8).randbytes(300)


def whole_but_unusual() -> Iterator[tuple[str, bytes]]:
    """Yield photos whose pixels are whole: these must be captioned."""
    for suffix, modes in _MODES.items():
        form = {end: name for name, end in FORMATS.items()}[suffix]
        for mode in modes:
            pixels = np.random.default_rng(4).integers(0, 256, (40, 60), np.uint8)
            image = Image.fromarray(pixels)
            if mode == "LAB":
                image = Image.frombytes("LAB", (60, 40), bytes(60 * 40 * 3))
            elif mode == "PA":
                image = Image.frombytes("PA", (60, 40), bytes(60 * 40 * 2))
                image.putpalette(bytes(range(256)) * 3)
                image = image.convert("LA")
            else:
                image = image.convert("RGB") if mode in ("CMYK", "P") else image
                image = image.convert(mode)
            yield f"mode-{mode.replace(';', '-')}.{suffix}", image_bytes(image, form)
    for number, exif in enumerate(exif_blocks()):
        for form in ("JPEG", "PNG", "WEBP"):
            content = photo_bytes(number, form, exif=exif) if exif else photo_bytes(2)
            suffix = FORMATS[form] if exif else "jpg"
            yield f"exif-{number}-{form}.{suffix}", content
    frames = [Image.new("RGB", (30, 20), (k * 9, 0, 0)) for k in range(20)]
    for form in ("GIF", "WEBP", "PNG", "TIFF"):
        animation = {"save_all": True, "append_images": frames[1:]}
        yield f"animated.{FORMATS[form]}", image_bytes(frames[0], form, **animation)
    for size in ((1, 1), (1, 3000), (3000, 1), (2, 2)):
        yield f"size-{size[0]}-{size[1]}.png", photo_bytes(1, "PNG", size)
    for form, suffix in FORMATS.items():
        if form != "AVIF" or HAS_AVIF:
            yield f"whole.{suffix}", photo_bytes(5, form)
    yield "WHOLE.JPG", photo_bytes(5)
    yield "png-named.jpg", photo_bytes(5, "PNG")


@functools.cache  # the bombs and the JPEG of many scans take seconds to make
def corpus(count: int) -> tuple[dict[bytes, bytes], set[bytes]]:
    """Return photos, name -> content, and the names that must be captioned.

    Args:
        count: number of photos with damaged bytes.
    """
    whole = {name.encode(): content for name, content in whole_but_unusual()}
    whole |= dict(named())
    others = {name.encode(): content for name, content in damaged(count)}
    return whole | others, set(whole)


def named() -> Iterator[tuple[bytes, bytes]]:
    """Yield whole photos under hostile names: these must be captioned."""
    for number, name in enumerate(NAMES):
        yield name.replace(b"/", b"_") + b".jpg", photo_bytes(number)


def damaged(count: int, seed: int = 3) -> Iterator[tuple[str, bytes]]:
    """Yield photos that may be refused.

    Args:
        count: number of photos with damaged bytes, beyond the fixed ones.
        seed: seed of the damage.
    """
    yield from bombs().items()
    yield "scans.jpg", many_scans(6000, 3000)
    for number, (what, content) in enumerate(OTHERS.items()):
        suffix = list(FORMATS.values())[number % 6]
        yield f"{what.replace(' ', '-')}.{suffix}", content
        yield f"{what.replace(' ', '-')}-2.jpg", content
    rng, forms = random.Random(seed), list(FORMATS)
    for number in range(count):
        form = forms[number % len(forms)]
        content = photo_bytes(number, form)
        for _ in range(rng.choice([1, 1, 3])):
            _, content = mutations.bytes_damaged(content, rng)
        # An AVIF file keeps a suffix that folders are searched for.
        suffix = FORMATS[form] if form != "AVIF" else "jpg"
        yield f"damaged-{number}-{form}.{suffix}", content
