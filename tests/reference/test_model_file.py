"""Model files are read without Keras; what is hostile or damaged is one line."""

import contextlib
import json

import keras
import numpy as np
import pytest
import refusals
import tiny_captioner as tiny
import tiny_transformer
from checks import assert_equal_leaves
from tensor_files import pack, split, unpacked

from show_attend_tell.models.saving import load_captioner
from show_attend_tell.reference.model_file import read_captioner
from show_attend_tell.runtime.errors import ModelFileError

IDENTITY = {"encoder_identity": {"network": "VGG16", "layer": "block5_conv3"}}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The JSON and the arrays of a tiny model's file."""
    file = tmp_path_factory.mktemp("model") / "model.safetensors"
    tiny.build(np.random.default_rng(0), IDENTITY).save(file)
    return unpacked(file)


def refusal_of(file):
    """Return the line by which both engines refuse a file."""
    message = refusals.refusal(ModelFileError, read_captioner, file)
    assert refusals.refusal(ModelFileError, load_captioner, file) == message
    assert message.startswith(f"{file}: ")
    assert len(message) < len(str(file)) + 400
    return message


def refusal(tmp_path, about, arrays):
    """Return the line by which a file of this content is refused."""
    return refusal_of(pack(tmp_path / "changed.safetensors", about, arrays))


def changed(about, values, *tables):
    """Return the JSON with other values in a table of it."""
    copy = place = json.loads(json.dumps(about))
    for table in tables:
        place = place[table]
    place.update(values)
    return copy


@pytest.mark.parametrize("design", [tiny, tiny_transformer])
def test_a_file_gives_the_settings_and_the_weights_back(rng, tmp_path, design):
    model = design.build(rng, arguments=IDENTITY)
    model.set_annotation_scale(3.0)
    file = tmp_path / "new" / "model.safetensors"
    model.save(file)
    found = read_captioner(file)
    assert found.config.settings == model.settings
    assert found.config.transformer == model.transformer
    assert found.vocabulary == model.vocabulary
    assert found.encoder_identity == model.encoder_identity
    assert_equal_leaves(found.weights, [np.asarray(w) for w in model.weights])
    _, arrays = unpacked(file)
    assert arrays.keys() == found.arrays.keys()
    model.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_safetensors_alone_reads_a_file(saved, tmp_path):
    import safetensors.numpy

    path = pack(tmp_path / "model.safetensors", *saved)
    arrays = safetensors.numpy.load_file(path)
    np.testing.assert_array_equal(arrays["w_h"], saved[1]["w_h"])
    header, _ = split(path.read_bytes())
    about = json.loads(header["__metadata__"]["show_attend_tell"])
    assert about["config"]["vocabulary"] == list(tiny.WORDS)


def test_keras_saves_and_loads_its_own_form_as_before(rng, tmp_path):
    model = tiny.build(rng, IDENTITY)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_equal_leaves(loaded.get_weights(), model.get_weights())


@pytest.mark.parametrize("name", ["Lambda", None, "Reranker", "x" * 5000, 5])
def test_other_classes_are_refused(tmp_path, saved, name):
    about, arrays = saved
    line = refusal(tmp_path, about | {"class": name}, arrays)
    assert f"must hold a Captioner. Received: {str(name)[:80]}" in line


@pytest.mark.parametrize(
    ("table", "key", "value", "reason"),
    [
        ("settings", "decoder", "no such decoder", "decoder"),
        ("settings", "lstm_width", 5, "must be (5, 7)"),
        ("settings", "lstm_width", 10**9, "must be (1000000000, 7)"),
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
    about, arrays = saved
    tables = ("config", table) if table else ("config",)
    assert reason in refusal(tmp_path, changed(about, {key: value}, *tables), arrays)


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
            about = changed(saved[0], {key: value}, "config")
            line = refusal(tmp_path, about, saved[1])
            assert "cannot be read as a model" in line, value


@pytest.mark.parametrize("value", [None, [], 5, "x"])
def test_settings_that_are_no_object_are_refused(tmp_path, saved, value):
    about, arrays = saved
    assert "config: " in refusal(tmp_path, about | {"config": value}, arrays)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("number", [0, 3, -1])
def test_weights_that_are_not_finite_are_refused(rng, tmp_path, value, number):
    model = tiny.build(rng)
    weight = model.weights[number]
    values = np.array(weight)
    values.reshape(-1)[-1] = value
    weight.assign(values)
    model.save(tmp_path / "model.safetensors")
    message = refusal_of(tmp_path / "model.safetensors")
    assert weight.path.rpartition("/")[2] in message
    assert "lower training.learning_rate" in message


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"w_h": None}, "`w_h` is missing"),
        ({"more": np.zeros(3, "f4")}, "it also holds 'more'"),
        ({"w_h.scale": np.ones(tiny.A, "f4")}, "it also holds 'w_h.scale'"),
        ({"reranker/mean": np.zeros(3, "f4")}, "it also holds 'reranker/mean'"),
        ({"w_h": np.zeros((tiny.n, tiny.A), "f8")}, "must be F32 or F16 or I8"),
        ({"w_h": np.zeros((tiny.A, tiny.n), "f4")}, "must be (4, 7). Received: (7, 4)"),
        ({"w_h": np.zeros((tiny.n, tiny.A), "i1")}, "`w_h.scale` is missing"),
    ],
)
def test_missing_and_surplus_arrays_and_other_shapes_are_refused(
    tmp_path, saved, arrays, reason
):
    kept = {n: v for n, v in (saved[1] | arrays).items() if v is not None}
    assert reason in refusal(tmp_path, saved[0], kept)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e37])
def test_scales_that_are_not_finite_are_refused(tmp_path, saved, value):
    scale = np.ones(tiny.A, np.float32)
    arrays = saved[1] | {"w_h": np.ones((tiny.n, tiny.A), "i1"), "w_h.scale": scale}
    pack(tmp_path / "good.safetensors", saved[0], arrays)
    found = read_captioner(tmp_path / "good.safetensors").arrays["w_h"]
    np.testing.assert_array_equal(found, np.ones((tiny.n, tiny.A)))
    scale[1] = value
    assert "NaN or infinity in w_h" in refusal(tmp_path, saved[0], arrays)


def test_a_flipped_bit_anywhere_is_refused(tmp_path, saved):
    rng = np.random.default_rng(0)
    file = pack(tmp_path / "model.safetensors", *saved)
    content = file.read_bytes()
    for place in rng.integers(0, len(content), 300):
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.integers(8)
        file.write_bytes(damaged)
        with contextlib.suppress(ModelFileError):
            read_captioner(file)
            pytest.fail(f"a flipped bit in byte {place} of {len(content)} is accepted")


def test_damaged_bytes_and_files_of_other_forms_are_refused(tmp_path, saved):
    rng = np.random.default_rng(0)
    file = pack(tmp_path / "damaged.safetensors", *saved)
    content = file.read_bytes()
    for _ in range(300):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 8):
            damaged[place] = rng.integers(256)
        file.write_bytes(damaged)
        with contextlib.suppress(ModelFileError):
            read_captioner(file)
    for other in (b"", b"PK\x03\x04", b"no tensors", b"[" * 10**5, content[:-9]):
        file.write_bytes(other)
        assert "cannot be read as a model" in refusal_of(file)
    assert "not a regular file" in refusal_of(tmp_path)


def test_paths_of_version_0_3_name_convert(tmp_path, saved):
    line = refusal_of(tmp_path / "model.keras")
    assert f"run `show-attend-tell convert {tmp_path / 'model.keras'}`" in line
    pack(tmp_path / "model.safetensors", *saved)
    line = refusal_of(tmp_path / "model.keras")
    assert f"`convert` made it {tmp_path / 'model.safetensors'}" in line
