"""Settings and experiments: reading, refused values and error messages."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.config.experiments import load_experiment, shipped_experiments
from show_attend_tell.config.settings import (
    experiment_from_dict,
    experiment_to_toml,
    read_experiment_file,
)
from show_attend_tell.runtime.errors import ConfigError

SMALL = {
    "name": "small",
    "data": {"name": "small", "source": "scenes"},
    "encoder": {"weights": "none"},
    "model": {"lstm_width": 8},
    "training": {"epochs": 2},
    "decoding": {},
    "hard": {},
}


def changed(table: str, **values) -> dict:
    """Return SMALL with some values of one table replaced."""
    return {**SMALL, table: {**SMALL[table], **values}}


def message_of(values: dict) -> str:
    with pytest.raises(ConfigError) as caught:
        experiment_from_dict(values, "file.toml")
    return str(caught.value)


def test_absent_keys_default_to_the_papers_values():
    read = experiment_from_dict(SMALL)
    assert read.encoder.network == "VGG19"
    assert read.encoder.layer == "block5_conv4"
    assert read.data.vocabulary_size == 10_000
    assert read.model.dropout == 0.5
    assert read.training.doubly_stochastic == 1.0


def test_settings_cannot_be_changed_after_reading():
    read = experiment_from_dict(SMALL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.training.epochs = 5


def test_an_unknown_key_is_named_with_file_nearest_key_and_remedy():
    message = message_of(changed("training", epoch=3))
    start = "file.toml: training.epoch: unknown key, nearest: training.epochs; remove"
    assert message.startswith(start)
    assert "\n" not in message


def test_an_unknown_table_is_refused():
    assert "trainig: unknown key" in message_of({**SMALL, "trainig": {}})


def test_a_missing_table_is_named():
    without = {key: value for key, value in SMALL.items() if key != "data"}
    assert "data: missing" in message_of(without)


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("data", "source", "imagenet"),
        ("data", "name", "../escape"),
        ("data", "vocabulary_size", 4),
        ("encoder", "image_size", 0),
        ("encoder", "resize", "stretch"),
        ("encoder", "precision", "float16"),
        ("encoder", "seed", -1),
        ("model", "dropout", 1.0),
        ("model", "attention", "sharp"),
        ("training", "epochs", 0),
        ("training", "epochs", "many"),
        ("training", "learning_rate", -1e-3),
        ("training", "label_smoothing", 1.0),
        ("training", "precision", "mixed_float16"),
        ("training", "seed", -1),
        ("training", "seed", 2**31),
        ("decoding", "beam", 0),
        ("decoding", "seed", -1),
        ("decoding", "locations", "best"),
        ("hard", "samples", 0),
        ("hard", "sampling_probability", 1.5),
        ("hard", "baseline_decay", 1.0),
        ("hard", "drawn_per", "word"),
        ("hard", "baseline", "caption"),
    ],
)
def test_an_invalid_value_is_named_and_shown(table, key, value):
    message = message_of(changed(table, **{key: value}))
    assert f"{table}.{key}: " in message
    assert repr(value) in message


def test_one_message_names_every_mistake_of_a_file():
    message = message_of({**changed("training", epochs=0), "decoding": {"beams": 2}})
    assert "training.epochs" in message
    assert "decoding.beams" in message


def test_weights_of_scenes_need_their_own_network():
    assert "SceneNet" in message_of(changed("encoder", weights="scenes"))


@given(
    epochs=st.integers(1, 10**6),
    rate=st.floats(1e-12, 10, allow_subnormal=False),
    weights=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])),
    mirror=st.booleans(),
)
def test_writing_and_reading_back_gives_the_same_settings(
    tmp_path_factory, epochs, rate, weights, mirror
):
    values = changed("training", epochs=epochs, learning_rate=rate)
    values["encoder"] = {"weights": f"x{weights}", "mirror": mirror}
    written = experiment_from_dict(values)
    path = tmp_path_factory.mktemp("toml") / "other.toml"
    path.write_text(experiment_to_toml(written), encoding="utf-8")
    assert read_experiment_file(path) == written


def test_an_experiment_is_named_after_its_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        experiment_to_toml(experiment_from_dict(SMALL)).replace('"small"', '"x"', 1)
    )
    assert read_experiment_file(path).name == "x"
    path.write_text(path.read_text().replace('name = "x"\n', "", 1))
    assert read_experiment_file(path).name == "mine"


def test_an_absent_file_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"no such settings file"):
        read_experiment_file(tmp_path / "absent.toml")


@pytest.mark.parametrize("content", [b"[data", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_file_that_is_not_toml_is_refused(tmp_path, content):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml: cannot be read as TOML"):
        read_experiment_file(path)


@pytest.mark.parametrize("name", sorted(shipped_experiments()))
def test_every_shipped_experiment_is_valid(name):
    assert load_experiment(name).name == name


@pytest.fixture
def small_file(tmp_path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(experiment_to_toml(experiment_from_dict(SMALL)), encoding="utf-8")
    return path


def test_an_unknown_experiment_lists_those_that_exist():
    with pytest.raises(ConfigError, match=r"Received: 'scene'") as caught:
        load_experiment("scene")
    assert all(name in str(caught.value) for name in shipped_experiments())


def test_single_settings_can_be_changed(small_file):
    changes = [
        "training.epochs=3",
        "encoder.network = VGG16",
        'encoder.layer="block5_conv3"',
        "encoder.mirror=true",
        "training.learning_rate=1e-3",
        "name=second",
    ]
    read = load_experiment(str(small_file), changes)
    assert read.training.epochs == 3
    assert read.encoder.network == "VGG16"
    assert read.encoder.layer == "block5_conv3"
    assert read.encoder.mirror is True
    assert read.training.learning_rate == 1e-3
    assert read.name == "second"
    assert read.model.lstm_width == SMALL["model"]["lstm_width"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "training.epoch=3",
            r"training\.epoch: unknown key, nearest: training\.epochs",
        ),
        ("trainer.epochs=3", r"trainer: unknown key, nearest: training"),
        ("epochs=3", r"epochs: unknown key, nearest: training\.epochs"),
        ("model.zzzz=3", r"model\.zzzz: unknown key; remove it"),
        ("training.epochs=0", r"training\.epochs"),
        ("training.epochs", r"table\.key=value"),
        ("training.=3", r"table\.key=value"),
        ("name.first=3", r"table\.key=value"),
        ("training=3", r"training: "),
    ],
)
def test_an_invalid_change_is_refused_and_no_file_is_blamed(
    small_file, change, message
):
    with pytest.raises(ConfigError, match=message) as caught:
        load_experiment(str(small_file), [change])
    assert "--set" in str(caught.value)
    assert small_file.name not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_invalid_file_is_named_whatever_is_changed(small_file):
    small_file.write_text(small_file.read_text().replace("epochs = 2", "epochs = 0"))
    with pytest.raises(ConfigError, match=r"small\.toml: training\.epochs"):
        load_experiment(str(small_file), ["training.epochs=3"])


def test_hard_attention_is_optional_and_defaults_to_the_authors_values():
    without = {key: value for key, value in SMALL.items() if key != "hard"}
    hard = experiment_from_dict(without).hard
    assert (hard.entropy_weight, hard.reinforce_weight) == (0.002, 1)
    assert (hard.reward_scale, hard.baseline_decay) == (0.1, 0.9)
    assert (hard.reward_per, hard.baseline) == ("caption", "moving")
    assert (hard.sampling_probability, hard.drawn_per) == (0.5, "minibatch")


def test_a_baseline_of_other_samples_needs_two_samples():
    hard = {"samples": 1, "baseline": "samples"}
    message = message_of({**SMALL, "hard": hard})
    assert "needs samples = 2 or more" in message
    assert message.count("Received") == 1
    assert "Value error" not in message


def test_reward_training_of_hard_attention_is_refused():
    tables = {**SMALL, "model": {"attention": "hard"}}
    training = {"objective": "cider", "batch_size": 60}
    message = message_of({**tables, "training": training})
    assert "objective = 'cider' must go with attention = 'soft'" in message


def test_reward_training_with_label_smoothing_is_refused():
    training = {"objective": "cider", "batch_size": 60}
    assert experiment_from_dict({**SMALL, "training": training})
    message = message_of({**SMALL, "training": {**training, "label_smoothing": 0.1}})
    assert "label_smoothing must be 0 with objective = 'cider'" in message
    assert message.endswith("Received: label_smoothing = 0.1")


def test_the_batch_of_reward_training_must_be_a_multiple_of_hypotheses():
    message = message_of({**SMALL, "training": {"objective": "cider"}})
    assert "batch_size must be a multiple of hypotheses" in message
