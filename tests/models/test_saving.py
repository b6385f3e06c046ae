"""Loading a model file: every damaged or foreign file is one line."""

import json
import zipfile

import keras
import numpy as np
import pytest
from refusals import refusal
from tiny_captioner import build
from zip_members import replace_members

from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError

IDENTITY = {"encoder_identity": {"network": "VGG16", "layer": "block5_conv3"}}


@pytest.fixture
def saved(rng, tmp_path):
    build(rng, IDENTITY).save(tmp_path / "model.keras")
    return tmp_path / "model.keras"


def refusal_of(path):
    """Return the message by which a model file is refused: one line, not too long."""
    message = refusal(ModelFileError, load_captioner, path)
    assert message.startswith(f"{path}: ")
    assert len(message) < len(str(path)) + 400
    return message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("number", [0, 3, -1])
def test_weights_that_are_not_finite_are_refused(rng, tmp_path, value, number):
    model = build(rng)
    weight = model.weights[number]
    values = np.array(weight)
    values.reshape(-1)[-1] = value
    weight.assign(values)
    model.save(tmp_path / "model.keras")
    message = refusal_of(tmp_path / "model.keras")
    assert weight.path.rpartition("/")[2] in message
    assert "lower training.learning_rate" in message


def change_config(path, change):
    """Rewrite the config.json of a model file."""
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
    change(config)
    replace_members(path, {"config.json": json.dumps(config)})


WRONG = (None, True, -1, 0, 1.5, "", "x" * 70_000, [], {}, [[["a"]]], 2**64)
KEYS = ["vocabulary", "settings", "annotation_width", "grid", "label_smoothing"]
KEYS += ["doubly_stochastic", "encoder_identity", "decoding", "hard", "seed"]
# Values of another type that are a value of the setting too.
ALLOWED = {"label_smoothing": (0,), "doubly_stochastic": (0, 1.5, 2**64), "seed": (0,)}
ALLOWED |= {key: ({},) for key in ("encoder_identity", "decoding", "hard")}


@pytest.mark.parametrize("key", KEYS)
def test_values_of_a_wrong_type_in_the_config_are_refused(saved, key):
    for value in WRONG:
        allowed = ALLOWED.get(key, ())
        if not any(type(a) is type(value) and a == value for a in allowed):
            changed = {key: value}
            change_config(saved, lambda config, c=changed: config["config"].update(c))
            assert "cannot be read as a model" in refusal_of(saved), value


def test_a_file_of_version_0_3_has_no_convolutions_of_its_own(saved):
    own = []
    change_config(saved, lambda config: config["config"].update(convolutions=own))
    load_captioner(saved)
    keras.saving.load_model(saved)
    own.append("block5_conv3")
    change_config(saved, lambda config: config["config"].update(convolutions=own))
    assert "`convolutions` must be []; version 0.3 reads them" in refusal_of(saved)
    with pytest.raises(ValueError, match="version 0.3 reads them"):
        keras.saving.load_model(saved)


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("encoder_identity", "network", None),
        ("encoder_identity", "weights", "../../outside.h5"),
        ("encoder_identity", "grid", [0, 0]),
        ("encoder_identity", "image_size", "224"),
        ("encoder_identity", "accepts", ["imagenet"]),
        ("settings", "lstm_width", -1),
        ("settings", "attention", "sharp"),
        ("settings", "unknown", 1),
        ("decoding", "beam", 0),
        ("decoding", "temperature", "hot"),
        ("hard", "samples", 1.5),
    ],
)
def test_wrong_values_inside_of_tables_are_named(saved, table, key, value):
    change_config(saved, lambda config: config["config"][table].update({key: value}))
    assert f"config.{table}.{key}" in refusal_of(saved)


def test_another_keras_model_is_refused(tmp_path):
    path = tmp_path / "other.keras"
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(path)
    assert "must hold a Captioner. Received: Sequential" in refusal_of(path)


def test_malformed_json_and_files_that_are_no_archive_are_refused(saved):
    for content in ("[" * 10**5, '"Captioner"', '{"a": "Captioner"', "9" * 5000, "\0"):
        replace_members(saved, {"config.json": content})
        assert "cannot be read as a model" in refusal_of(saved)
    for content in (b"", b"PK\x03\x04", b"no archive", b"[" * 10**5):
        saved.write_bytes(content)
        assert "cannot be read as a model" in refusal_of(saved)
