"""Files of tensors that declare too much, overlap, hide arrays, or hold NaN."""

import json
import math
import pickle
from collections.abc import Iterator

import numpy as np
from hostile_models import Canaries, changed_configs, keras_objects
from tensor_files import joined, pack, split
from zip_members import hdf5

_KEY = "show_attend_tell"


def headers(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files whose header does harm, from the content of a good file."""
    header, data = split(content)
    text = json.dumps(header).encode()
    for length in (4 << 30, 2**64 - 1, 2**63, len(content) + 1, 0, 1):
        yield f"a header of {length} bytes", joined(text, data, length)
    yield "a header of 50 MB of spaces", joined(text + b" " * 50_000_000, data)
    for deep in (b"[" * 10**5, b'{"a":' * 10**5, b'{"__metadata__":' * 10**4):
        yield f"JSON bomb {deep[:10]!r}", joined(deep, data)
    yield "100,000 empty arrays", joined(_many(header, 100_000), data)
    for odd in (b"", b"{}", b"null", b"[]", b"9" * 5000, b"\xff\xfe{}", b'{"a": 1}'):
        yield f"the header {odd[:10]!r}", joined(odd, data)
    places = {key: place for key, place in header.items() if key != "__metadata__"}
    name = max(places, key=lambda key: places[key]["data_offsets"])  # the last one
    place = header[name]
    size = len(data)
    start, end = place["data_offsets"]
    for what, change in {
        "an overlap": {"data_offsets": [max(start - 4, 0), max(end - 4, 4)]},
        "a gap": {"data_offsets": [start + 4, end + 4]},
        "offsets beyond the file": {"data_offsets": [start, size + 16]},
        "offsets of 2^64 - 1": {"data_offsets": [2**64 - 4, 2**64 - 1]},
        "offsets that go back": {"data_offsets": [end, start]},
        "negative offsets": {"data_offsets": [-4, end]},
        "16 GB declared": {"shape": [2**32]},
        "a shape of 2^64 numbers": {"shape": [2**32, 2**32, 2**32]},
        "a negative shape": {"shape": [-1]},
        "100,000 axes": {"shape": [1] * 100_000},
        "no type": {"dtype": None},
        "an unknown type": {"dtype": "PICKLE"},
        "another type": {"dtype": "I64", "shape": [math.prod(place["shape"]) // 2]},
        "bfloat16": {"dtype": "BF16", "shape": [2 * math.prod(place["shape"])]},
    }.items():
        yield what, joined(header | {name: place | change}, data)
    twice = header | {"more": place}
    yield "two names of one array", joined(twice, data)
    yield "more bytes than arrays", joined(header, data + bytes(1000))
    yield (
        "4 GB of zeros declared",
        joined(
            header
            | {
                "more": {
                    "dtype": "U8",
                    "shape": [4 << 30],
                    "data_offsets": [size, size + (4 << 30)],
                }
            },
            data,
        ),
    )
    about = header["__metadata__"][_KEY]
    for what, metadata in {
        "no JSON": {},
        "JSON of another program": {"format": "pt"},
        "JSON that is no text": {_KEY: {"format": 1}},
        "a JSON bomb in the text": {_KEY: "[" * 10**6},
        "a text of 6 MB": {_KEY: about + " " * 6_000_000},
        "a changed setting": {_KEY: about.replace('"beam":2', '"beam":3')},
        "another format": {_KEY: about.replace('"format":1', '"format":2')},
        "numbers of 5,000 digits": {
            _KEY: about.replace('"format":1', f'"format":{"9" * 5000}')
        },
        "no checksums": {_KEY: about.replace('"crc32"', '"crc33"')},
    }.items():
        if metadata != header["__metadata__"]:
            yield what, joined(header | {"__metadata__": metadata}, data)


def _many(header: dict, count: int) -> dict:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return header | {f"x{k}": empty for k in range(count)}


def other_files(canaries: Canaries) -> Iterator[tuple[str, bytes]]:
    """Yield files of other forms."""
    yield "HDF5", hdf5(lambda file: file.create_dataset("x", data=np.zeros(1000, "f4")))
    yield "a zip archive", b"PK\x03\x04" + bytes(100)

    class Opens:
        def __reduce__(self):
            return open, (str(canaries.mark), "w")

    yield "a pickle", pickle.dumps(Opens())
    yield "empty", b""
    yield "zeros", bytes(100_000)


def changed_arrays(arrays: dict) -> Iterator[tuple[str, dict]]:
    """Yield arrays with a member too few or many, of other shapes, or not finite."""
    first = min(name for name, values in arrays.items() if values.ndim == 2)
    values = arrays[first]
    yield "a missing array", {k: v for k, v in arrays.items() if k != first}
    yield "a surplus array", arrays | {"more": np.zeros(3, np.float32)}
    yield "a surplus part", arrays | {"reranker/mean": np.zeros(3, np.float32)}
    yield "another shape", arrays | {first: np.zeros((3, 3), np.float32)}
    yield "its transpose", arrays | {first: np.zeros(values.shape[::-1] + (1,), "f4")}
    for kind in (np.float64, np.int32, np.uint8, np.bool_):
        yield f"{kind.__name__}", arrays | {first: values.astype(kind)}
    for value in (np.nan, np.inf, -np.inf):
        odd = values.astype(np.float32)
        odd.flat[-1] = value
        yield f"a weight of {value}", arrays | {first: odd}
    q = np.ones(values.shape, np.int8)
    scale = np.ones(values.shape[-1], np.float32)
    yield "8 bits without scales", arrays | {first: q}
    for value in (np.nan, np.inf, 3e38):
        changed = scale.copy()
        changed[0] = value
        yield f"a scale of {value}", arrays | {first: q, f"{first}.scale": changed}
    yield "other scales", arrays | {first: q, f"{first}.scale": scale[1:]}
    yield "float16 scales", arrays | {first: q, f"{first}.scale": scale.astype("f2")}
    yield "scales of no 8 bits", arrays | {f"{first}.scale": scale}


def hostile_files(path, about: dict, arrays: dict, canaries: Canaries):
    """Yield descriptions of files, each of which is written to a path first."""
    pack(path, about, arrays)
    content = path.read_bytes()
    for what, other in (*headers(content), *other_files(canaries)):
        path.write_bytes(other)
        yield what
    for what, other in changed_arrays(arrays):
        pack(path, about, other)
        yield what
    for what, harm in keras_objects(canaries):
        if len(json.dumps(harm)) < 10_000:
            pack(path, about | {"class": harm["class_name"]}, arrays)
            yield f"{what}, as the class"
            pack(path, about | {"config": harm["config"]}, arrays)
            yield f"{what}, as the settings"
            pack(path, about | {"config": about["config"] | {"settings": harm}}, arrays)
            yield f"{what}, nested"
    for value in (None, [], 5, "x", {}):
        pack(path, about | {"config": value}, arrays)
        yield f"settings {value!r}"
    if about["class"] == "Captioner":
        for what, changed in changed_configs({"config": about["config"]}):
            pack(path, about | changed, arrays)
            yield what
