"""Model files are read without Keras; what is hostile or damaged is one line."""

import contextlib
import io
import json
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import tiny_captioner as tiny
from hostile_models import Canaries, changed_weights
from zip_members import unzipped, zipped

from show_attend_tell.reference.hdf5 import Hdf5File
from show_attend_tell.reference.model_file import read_captioner
from show_attend_tell.runtime.errors import ModelFileError

CONFIG, WEIGHTS = "config.json", "model.weights.h5"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The members of a tiny model's file."""
    file = tmp_path_factory.mktemp("model") / "model.keras"
    tiny.build(np.random.default_rng(0)).save(file)
    return unzipped(file.read_bytes())


def refusal(tmp_path, members):
    """Return the message with which a file of these members is refused."""
    file = tmp_path / "changed.keras"
    file.write_bytes(zipped(members, zipfile.ZIP_DEFLATED))
    with pytest.raises(ModelFileError) as error:
        read_captioner(file)
    message = str(error.value)
    assert message.startswith(str(file))
    assert "\n" not in message
    assert len(message) < len(str(file)) + 400
    return message


def hdf5(change, content=b""):
    """Return the bytes of an HDF5 file after `change(file)`."""
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+" if content else "w") as file:
        change(file)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"class_name": "Lambda"}, "must hold a Captioner"),
        ({"class_name": None}, "must hold a Captioner"),
        ({"registered_name": "keras>Lambda"}, "must hold a Captioner"),
        ({"registered_name": "x" * 5000}, "must hold a Captioner"),
        (
            {"class_name": "Other", "registered_name": "show_attend_tell>Other"},
            "must hold a Captioner. Received: Other",
        ),
        ({"config": {}}, "vocabulary"),
        ({"config": None}, "config: "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_other_classes_are_refused(tmp_path, saved, values, reason):
    config = json.loads(saved[CONFIG]) | values
    assert reason in refusal(tmp_path, saved | {CONFIG: json.dumps(config)})


@pytest.mark.parametrize(
    ("table", "key", "value", "reason"),
    [
        ("settings", "decoder", "gru", "decoder"),
        ("settings", "lstm_width", 5, "must be (5, 7)"),
        ("settings", "lstm_width", 10**9, "weights"),
        (None, "annotation_width", 6, "must be (6, 7)"),
        (None, "grid", ["a", 2], "grid"),
    ],
)
def test_other_settings_are_refused(tmp_path, saved, table, key, value, reason):
    config = json.loads(saved[CONFIG])
    (config["config"][table] if table else config["config"])[key] = value
    assert reason in refusal(tmp_path, saved | {CONFIG: json.dumps(config)})


# Arrays that are links, or stored in another file.
ELSEWHERE = {
    what: change
    for what, change in changed_weights(Canaries(Path("mark"), Path("/tmp/x.h5"), ""))
    if " GB " not in what
}


def infinite(file):
    file["decoder/vars/1"][0] = np.inf


def text(file):
    shape = file["decoder/vars/0"].shape
    del file["decoder/vars/0"]
    file["decoder/vars/0"] = np.full(shape, b"x")


def absent(file):
    del file["decoder/vars/0"]


@pytest.mark.parametrize(
    "change", [*ELSEWHERE.values(), infinite, text, absent], ids=[*ELSEWHERE, *"abc"]
)
def test_arrays_that_are_elsewhere_or_no_numbers_are_refused(tmp_path, saved, change):
    refusal(tmp_path, saved | {WEIGHTS: hdf5(change, saved[WEIGHTS])})


def test_a_member_too_many_and_an_archive_of_zeros_are_refused(tmp_path, saved):
    assert "assets" in refusal(tmp_path, saved | {"assets/x": b""})
    big = saved | {WEIGHTS: bytes(60_000_000)}
    assert "it unpacks to 6" in refusal(tmp_path, big)
    assert "no item" in refusal(tmp_path, {CONFIG: saved[CONFIG]})


def test_false_sizes_double_members_and_other_methods_are_refused(tmp_path, saved):
    file = tmp_path / "changed.keras"
    file.write_bytes(zipped({CONFIG: saved[CONFIG]}, zipfile.ZIP_LZMA))
    with pytest.raises(ModelFileError, match="another method"):
        read_captioner(file)
    content = zipped(dict.fromkeys((CONFIG, "x" + CONFIG[1:]), saved[CONFIG]))
    file.write_bytes(content.replace(b"xonfig.json", CONFIG.encode()))
    with pytest.raises(ModelFileError, match="a member twice"):
        read_captioner(file)
    content = zipped({CONFIG: bytes(10_000_000)}, zipfile.ZIP_DEFLATED)
    sizes = (10_000_000).to_bytes(4, "little"), (100).to_bytes(4, "little")
    file.write_bytes(content.replace(*sizes))
    with pytest.raises(ModelFileError, match="Bad CRC-32"):
        read_captioner(file)


def test_an_object_with_two_names_and_too_many_numbers_are_refused(tmp_path, saved):
    def twice(file):
        file["more"] = file["decoder"]

    def many(file):
        file.create_dataset("more", (10**9,), "f4", chunks=(10**6,), compression="gzip")

    for change, fault in ((twice, "two names"), (many, "weights, more than")):
        assert fault in refusal(
            tmp_path, saved | {WEIGHTS: hdf5(change, saved[WEIGHTS])}
        )


def test_damaged_bytes_are_refused_or_read(tmp_path, saved):
    rng, content = np.random.default_rng(0), saved[WEIGHTS]
    for _ in range(300):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 8):
            damaged[place] = rng.integers(256)
        file = tmp_path / "damaged.keras"
        file.write_bytes(zipped(saved | {WEIGHTS: bytes(damaged)}))
        with contextlib.suppress(ModelFileError):
            read_captioner(file)


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "shuffle": True}])
@pytest.mark.parametrize("dtype", ["f2", "f4", "i1"])
@pytest.mark.parametrize("shape", [(), (1,), (300,), (700, 90), (3, 3, 40, 50)])
def test_arrays_are_those_of_h5py(rng, shape, dtype, options):
    values = (10 * rng.standard_normal(shape)).astype(dtype)
    options = options if shape else {}
    names = [f"group/member {k}" for k in range(30)]  # several nodes of the tree

    def write(file):
        for name in names:
            file.create_dataset(name, data=values, **options)

    file = Hdf5File(hdf5(write))
    for name in (names[0], names[-1]):
        np.testing.assert_array_equal(file.read(name, shape), values)
    with pytest.raises(ValueError, match="is missing"):
        file.read("group/other", shape)
    with pytest.raises(ValueError, match="must be"):
        file.read(names[0], (*shape, 2))


def test_chunks_that_gzip_would_lengthen_are_stored_as_they_are(rng):
    values = rng.integers(-128, 128, (64, 64)).astype("i1")
    options = {"compression": "gzip", "shuffle": True, "chunks": (8, 8)}
    file = hdf5(lambda file: file.create_dataset("x", data=values, **options))
    np.testing.assert_array_equal(Hdf5File(file).read("x", (64, 64)), values)
