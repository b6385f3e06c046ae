"""Files of tensors as their JSON and their arrays, to be written again with changes."""

import json
from pathlib import Path

import safetensors.numpy
from safetensors import safe_open

from show_attend_tell.reference.tensor_file import write_tensors


def unpacked(path) -> tuple[dict, dict]:
    """Return the JSON of a file, without format and checksums, and its arrays."""
    with safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()["show_attend_tell"])
    del about["format"], about["crc32"]
    return about, safetensors.numpy.load_file(path)


def pack(path, about: dict, arrays: dict) -> Path:
    """Write a file with valid checksums, and return its path."""
    write_tensors(path, about, arrays)
    return Path(path)


def repack(path, about: dict | None = None, arrays: dict | None = None, target=None):
    """Write a file again with other JSON or arrays; None removes an entry."""
    old, values = unpacked(path)
    changed = {**old, **(about or {})}
    values = {**values, **(arrays or {})}
    kept = (
        {k: v for k, v in part.items() if v is not None} for part in (changed, values)
    )
    return pack(target or path, *kept)


def split(content: bytes) -> tuple[dict, bytes]:
    """Return the header of a file's content, and the bytes after it."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def joined(header: object, data: bytes, length: int | None = None) -> bytes:
    """Return the content of a file; the header may be JSON as bytes, or its values."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    return size.to_bytes(8, "little") + text + data
