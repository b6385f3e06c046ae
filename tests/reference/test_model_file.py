"""Model files are read without Keras; what is hostile or damaged is one line."""

import contextlib
import json
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
import refusals
import tiny_captioner as tiny
from hostile_models import Canaries, changed_weights
from zip_members import hdf5, unzipped, zipped

from show_attend_tell.models.saving import load_captioner
from show_attend_tell.reference.hdf5 import Hdf5File
from show_attend_tell.reference.model_file import read_captioner
from show_attend_tell.runtime.errors import ModelFileError

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
IDENTITY = {"encoder_identity": {"network": "VGG16", "layer": "block5_conv3"}}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The members of a tiny model's file."""
    file = tmp_path_factory.mktemp("model") / "model.keras"
    tiny.build(np.random.default_rng(0), IDENTITY).save(file)
    return unzipped(file.read_bytes())


def refusal_of(file):
    """Return the line by which both engines refuse a file."""
    message = refusals.refusal(ModelFileError, read_captioner, file)
    assert refusals.refusal(ModelFileError, load_captioner, file) == message
    assert message.startswith(f"{file}: ")
    assert len(message) < len(str(file)) + 400
    return message


def refusal(tmp_path, members):
    """Return the line by which a file of these members is refused."""
    file = tmp_path / "changed.keras"
    file.write_bytes(zipped(members, zipfile.ZIP_DEFLATED))
    return refusal_of(file)


def changed(saved, values, *tables):
    """Return the members with other values in the configuration or a table of it."""
    config = place = json.loads(saved[CONFIG])
    for table in tables:
        place = place[table]
    place.update(values)
    return saved | {CONFIG: json.dumps(config)}


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
        ({"class_name": "Sequential", "registered_name": None}, "Received: Sequential"),
        ({"config": {}}, "vocabulary"),
        ({"config": None}, "config: "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_other_classes_are_refused(tmp_path, saved, values, reason):
    assert reason in refusal(tmp_path, changed(saved, values))


@pytest.mark.parametrize(
    ("table", "key", "value", "reason"),
    [
        ("settings", "decoder", "gru", "decoder"),
        ("settings", "lstm_width", 5, "must be (5, 7)"),
        ("settings", "lstm_width", 10**9, "weights"),
        (None, "annotation_width", 6, "must be (6, 7)"),
        (None, "grid", ["a", 2], "grid"),
        ("encoder_identity", "network", None, "config.encoder_identity.network"),
        ("encoder_identity", "weights", "../../outside.h5", "encoder_identity.weights"),
        ("encoder_identity", "grid", [0, 0], "config.encoder_identity.grid"),
        ("encoder_identity", "image_size", "224", "encoder_identity.image_size"),
        ("encoder_identity", "accepts", ["imagenet"], "encoder_identity.accepts"),
        ("settings", "lstm_width", -1, "config.settings.lstm_width"),
        ("settings", "attention", "sharp", "config.settings.attention"),
        ("settings", "unknown", 1, "config.settings.unknown"),
        ("decoding", "beam", 0, "config.decoding.beam"),
        ("decoding", "temperature", "hot", "config.decoding.temperature"),
        ("hard", "samples", 1.5, "config.hard.samples"),
    ],
)
def test_other_settings_are_refused(tmp_path, saved, table, key, value, reason):
    tables = ("config", table) if table else ("config",)
    assert reason in refusal(tmp_path, changed(saved, {key: value}, *tables))


WRONG = (None, True, -1, 0, 1.5, "", "x" * 70_000, [], {}, [[["a"]]], 2**64)
KEYS = ["vocabulary", "settings", "annotation_width", "grid", "label_smoothing"]
KEYS += ["doubly_stochastic", "encoder_identity", "decoding", "hard", "seed"]
# Values of another type that are a value of the setting too.
ALLOWED = {"label_smoothing": (0,), "doubly_stochastic": (0, 1.5, 2**64), "seed": (0,)}
ALLOWED |= {key: ({},) for key in ("encoder_identity", "decoding", "hard")}


@pytest.mark.parametrize("key", KEYS)
def test_values_of_a_wrong_type_in_the_config_are_refused(tmp_path, saved, key):
    for value in WRONG:
        allowed = ALLOWED.get(key, ())
        if not any(type(a) is type(value) and a == value for a in allowed):
            line = refusal(tmp_path, changed(saved, {key: value}, "config"))
            assert "cannot be read as a model" in line, value


def test_a_file_of_version_0_3_has_no_convolutions_of_its_own(tmp_path, saved):
    file = tmp_path / "old.keras"
    file.write_bytes(zipped(changed(saved, {"convolutions": []}, "config")))
    load_captioner(file)
    keras.saving.load_model(file)
    own = {"convolutions": ["block5_conv3"]}
    file.write_bytes(zipped(changed(saved, own, "config")))
    assert "`convolutions` must be []; version 0.3 reads them" in refusal_of(file)
    with pytest.raises(ValueError, match="version 0.3 reads them"):
        keras.saving.load_model(file)


def test_malformed_json_and_files_that_are_no_archive_are_refused(tmp_path, saved):
    for content in ("[" * 10**5, '"Captioner"', '{"a": "Captioner"', "9" * 5000, "\0"):
        line = refusal(tmp_path, saved | {CONFIG: content})
        assert "cannot be read as a model" in line
    for content in (b"", b"PK\x03\x04", b"no archive", b"[" * 10**5):
        (tmp_path / "other.keras").write_bytes(content)
        assert "cannot be read as a model" in refusal_of(tmp_path / "other.keras")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("number", [0, 3, -1])
def test_weights_that_are_not_finite_are_refused(rng, tmp_path, value, number):
    model = tiny.build(rng)
    weight = model.weights[number]
    values = np.array(weight)
    values.reshape(-1)[-1] = value
    weight.assign(values)
    model.save(tmp_path / "model.keras")
    message = refusal_of(tmp_path / "model.keras")
    assert weight.path.rpartition("/")[2] in message
    assert "lower training.learning_rate" in message


# Arrays that are links, or stored in another file.
ELSEWHERE = {
    what: change
    for what, change in changed_weights(Canaries(Path("mark"), Path("/tmp/x.h5"), ""))
    if " GB " not in what
}


def text(file):
    shape = file["decoder/vars/0"].shape
    del file["decoder/vars/0"]
    file["decoder/vars/0"] = np.full(shape, b"x")


def absent(file):
    del file["decoder/vars/0"]


@pytest.mark.parametrize(
    "change", [*ELSEWHERE.values(), text, absent], ids=[*ELSEWHERE, "text", "absent"]
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
    assert "another method" in refusal_of(file)
    content = zipped(dict.fromkeys((CONFIG, "x" + CONFIG[1:]), saved[CONFIG]))
    file.write_bytes(content.replace(b"xonfig.json", CONFIG.encode()))
    assert "a member twice" in refusal_of(file)
    content = zipped({CONFIG: bytes(10_000_000)}, zipfile.ZIP_DEFLATED)
    sizes = (10_000_000).to_bytes(4, "little"), (100).to_bytes(4, "little")
    file.write_bytes(content.replace(*sizes))
    assert "Bad CRC-32" in refusal_of(file)


def test_an_object_with_two_names_and_too_many_numbers_are_refused(tmp_path, saved):
    def twice(file):
        file["more"] = file["decoder"]

    def many(file):
        file.create_dataset("more", (10**9,), "f4", chunks=(10**6,), compression="gzip")

    for change, fault in ((twice, "two names"), (many, "weights, more than")):
        weights = hdf5(change, saved[WEIGHTS])
        assert fault in refusal(tmp_path, saved | {WEIGHTS: weights})


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
