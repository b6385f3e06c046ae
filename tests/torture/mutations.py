"""Damage bytes, archives and JSON texts; every function takes a seeded generator."""

import io
import json
import random
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator

from zip_members import unzipped, zipped

DEEP = 100_000  # levels of nesting
LONG_INTEGER = "9" * 5_000
# JSON values, as text, put in the place of another value.
ODD_VALUES = (
    *("null", "true", "-1", "0", "1e999", "-1e999", "NaN", "1.5", '""', "[]", "{}"),
    *('"\\ud800"', '"\\u0000"', '"a\\r\\nb"', '"../../outside"', '"/dev/zero"'),
    *(LONG_INTEGER, "1e400", '"' + "x" * 300 + '"', '"' + "x " * 70_000 + '"'),
    *('[[[["a"]]]]', '{"a": {"b": null}}', "18446744073709551616", '"\\ud83d\\ude00"'),
    "[" * DEEP + "]" * DEEP,
)
_CENTRAL = b"PK\x01\x02"
# Offset and width in bytes of the fields of a central directory entry.
_FIELDS = {
    "version": (6, 2),
    "flags": (8, 2),
    "method": (10, 2),
    "time": (12, 2),
    "crc": (16, 4),
    "packed size": (20, 4),
    "size": (24, 4),
    "name length": (28, 2),
    "extra length": (30, 2),
    "comment length": (32, 2),
    "disk": (34, 2),
    "attributes": (38, 4),
    "offset": (42, 4),
}
HOSTILE_NAMES = (
    *("../../outside.jpg", "/outside.jpg", "C:\\outside.jpg", "..\\..\\outside.jpg"),
    *("a/../../../outside.jpg", "x" * 300 + ".jpg", "new\nline.jpg", "cr\rcr.jpg"),
    *("-dash.jpg", "\u202egpj.exe", "caf\xe9.jpg", "\U0001f600.jpg", "nul\0.jpg"),
    *("con.jpg", " .jpg", "a" + "/b" * 900 + ".jpg", "photo00.jpg/photo01.jpg"),
    *("./photo00.jpg", "x/photo00.jpg", ".hidden.jpg", "%s%n.jpg", "~.jpg", "|sh.jpg"),
)


def bytes_damaged(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return a description and the content with bits flipped, cut, doubled or moved."""
    kind = rng.choice(["flip", "flip", "flip", "cut", "byte", "insert", "drop", "swap"])
    data, at = bytearray(content), rng.randrange(max(1, len(content)))
    if not data:
        return "insert 0", bytes(rng.randbytes(8))
    if kind == "flip":
        bits = [rng.randrange(8 * len(data)) for _ in range(rng.choice([1, 1, 2, 8]))]
        for bit in bits:
            data[bit // 8] ^= 1 << bit % 8
        return f"flip bits {bits}", bytes(data)
    if kind == "cut":
        return f"cut at {at}", bytes(data[:at])
    if kind == "byte":
        value = rng.choice([0, 10, 13, 34, 92, 127, 128, 255])
        data[at] = value
        return f"byte {at} = {value}", bytes(data)
    length = rng.randrange(1, 40)
    if kind == "insert":
        data[at:at] = rng.randbytes(length)
    elif kind == "drop":
        del data[at : at + length]
    else:
        data[at : at + length] = data[at : at + length][::-1]
    return f"{kind} {length} bytes at {at}", bytes(data)


def zip_fields_changed(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return an archive with a field of its directory changed."""
    data, places, at = bytearray(content), [], content.find(_CENTRAL)
    while at >= 0:
        places.append(at)
        at = content.find(_CENTRAL, at + 4)
    place, field = rng.choice(places), rng.choice(list(_FIELDS))
    offset, width = _FIELDS[field]
    most = 2 ** (8 * width) - 1
    old = int.from_bytes(data[place + offset : place + offset + width], "little")
    choices = [0, 1, old + 1, old - 1, most, most // 2, rng.randrange(most), old * 1000]
    if field == "method":
        choices = [1, 6, 8, 9, 12, 14, 93, 99]
    elif field == "flags":
        choices = [1, 0x20, 0x40, 0x800, 0x2000, 0xFFFF]
    new = rng.choice(choices) & most
    data[place + offset : place + offset + width] = new.to_bytes(width, "little")
    if rng.random() < 0.5 and field == "method":  # the local header agrees
        local = int.from_bytes(data[place + 42 : place + 46], "little")
        data[local + 8 : local + 10] = new.to_bytes(2, "little")
    return f"entry {places.index(place)}: {field} = {new}", bytes(data)


def zip_repacked(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return a valid archive with other methods, and one entry damaged inside."""
    method = rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    data = bytearray(zipped(unzipped(content), method))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        chosen = rng.choice(archive.infolist())
    start = chosen.header_offset + 30 + len(chosen.filename)
    at = start + rng.randrange(max(1, min(chosen.compress_size, 60)))
    data[at] = rng.choice([0, 255, rng.randrange(256)])
    what = f"method {method}, {chosen.filename} byte {at - start} = {data[at]}"
    return what, bytes(data)


def zip_with_hostile_name(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return an archive with another entry of a hostile name, or a link."""
    name, link = rng.choice(HOSTILE_NAMES), rng.random() < 0.3
    files, without_nul = unzipped(content), b"X" * len(name.encode())
    info = zipfile.ZipInfo(without_nul.decode() if "\0" in name else name)
    if link:
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
    first = b"/etc/passwd" if link else next(iter(files.values()))
    data = zipped({info: first, **files})
    if "\0" in name:
        data = data.replace(without_nul, name.encode())
    return f"entry {name!r:.80}{' as a link' if link else ''}", data


def zip_of_zeros(name: str, megabytes: int) -> bytes:
    """Return a small archive whose one entry is megabytes of one line after another."""
    block = (b"photo00.jpg#0\ta red circle .\n" * 40_000)[: 1 << 20]
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(megabytes):
        check = zlib.crc32(block, check)
    body = packed * megabytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    encoded, size = name.encode(), megabytes << 20
    fields = struct.pack(
        "<HHHHHIIIHH", 20, 0, 8, 0, 33, check, len(body), size, len(encoded), 0
    )
    local = b"PK\x03\x04" + fields + encoded
    central = _CENTRAL + struct.pack("<H", 20) + fields
    central += struct.pack("<HHHII", 0, 0, 0, 0, 0) + encoded
    end = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(body), 0)
    return local + body + central + b"PK\x05\x06" + end


def json_changed(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return a JSON text with one value replaced, removed, or its key renamed."""
    value = json.loads(content)
    path, place = "", value
    while isinstance(place, dict | list) and place:
        key = rng.choice(list(place)) if isinstance(place, dict) else None
        key = rng.randrange(len(place)) if key is None else key
        path += f"[{key!r}]"
        inside = place[key]
        if not (isinstance(inside, dict | list) and inside) or rng.random() < 0.3:
            break
        place = place[key]
    odd = rng.choice(ODD_VALUES)
    if not path or rng.random() < 0.04:
        return f"all = {odd[:40]}", odd.encode()
    kind = rng.random()
    if kind < 0.1:
        del place[key]
        return f"{path} removed", json.dumps(value).encode()
    if kind < 0.15 and isinstance(place, dict):
        place["new key"] = place.pop(key)
        return f"{path} renamed", json.dumps(value).encode()
    place[key] = "@@HERE@@"
    return f"{path} = {odd[:40]}", json.dumps(value).replace('"@@HERE@@"', odd).encode()


TOML_VALUES = (
    *("0", "-1", "1e400", "nan", "inf", "-inf", "true", '""', "[]", "{}", "1979-05-27"),
    *('"\\u0000"', '"../../outside"', '"/outside"', LONG_INTEGER, "0x" + "f" * 4000),
    *('"' + "x" * 300 + '"', '"a\\nb"', "[" * DEEP + "]" * DEEP, "'''x", "1e-400"),
    *('"\\ud800"', "9223372036854775808", '"\U0001f600"', '"."', '".."', '"con/aux"'),
)


def toml_changed(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return settings with a value replaced, or a line removed, doubled or nested."""
    lines = content.decode().splitlines()
    at = rng.randrange(len(lines))
    key, odd = lines[at].split(" = ")[0], rng.choice(TOML_VALUES)
    kind = rng.random()
    if kind < 0.08:
        lines.insert(0, f"name = {odd}")
        return f"name = {odd[:40]}", "\n".join(lines).encode()
    if kind < 0.16:
        del lines[at]
        return f"line {at} removed", "\n".join(lines).encode()
    if kind < 0.2:
        lines.insert(at, lines[at])
        return f"line {at} doubled", "\n".join(lines).encode()
    if kind < 0.22:
        lines[at] = ".".join(["a"] * 50_000) + " = 1"
        return f"line {at} = 50,000 dotted keys", "\n".join(lines).encode()
    lines[at] = f"{key} = {odd}"
    return f"{key} = {odd[:40]}", "\n".join(lines).encode()


def hostile_texts() -> Iterator[tuple[str, bytes]]:
    """Yield whole contents for a text file that is read line by line or as JSON."""
    yield "empty", b""
    yield "a BOM alone", b"\xef\xbb\xbf"
    yield "UTF-16", "a,b\n".encode("utf-16")
    yield "latin-1", b"caf\xe9,caf\xe9\n" * 20
    yield "NUL bytes", b"\0" * 5000
    yield "a line of 10^7 letters", b"x" * 10**7
    yield "10^5 empty lines", b"\n" * 10**5
    yield "carriage returns", b"a\rb\r\nc\r" * 50
    yield "nested lists", b"[" * DEEP + b"]" * DEEP
    yield "unclosed lists", b"[" * DEEP
    yield "nested objects", b'{"a":' * DEEP + b"1" + b"}" * DEEP
    yield "an integer of 5,000 digits", LONG_INTEGER.encode()
    yield "a list of such integers", f"[{LONG_INTEGER}]".encode()
    yield "a lone surrogate", b'"\\ud800"'
    yield "an encoded surrogate", b'"\xed\xa0\x80"'
    yield "not a number", b"NaN"
    yield "null", b"null"
    yield "a number", b"17"
    yield "a list", b"[]"
    yield "an object", b"{}"
    yield "a zip archive", b"PK\x05\x06" + bytes(18)
    yield "a pickle", b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04exit\x85R."
