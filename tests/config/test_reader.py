"""Settings of experiments that read words."""

import pytest

from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.settings import (
    experiment_from_dict,
    experiment_to_dict,
    experiment_to_toml,
    read_experiment_file,
)
from show_attend_tell.runtime.errors import ConfigError

TABLES = {
    "name": "x",
    "task": "read",
    "data": {"name": "words", "source": "words"},
    "training": {},
    "reader": {},
}


def changed(table, **keys):
    return {**TABLES, table: {**TABLES[table], **keys}}


def test_defaults_are_those_of_the_table(tmp_path):
    one = experiment_from_dict(TABLES)
    assert one.reader.channels == (16, 32, 64, 128)
    assert one.reader.reads_places
    assert (one.training.optimizer, one.training.metric) == ("adamw", "word_accuracy")
    file = tmp_path / "x.toml"
    file.write_text(experiment_to_toml(one))
    assert read_experiment_file(file) == one


@pytest.mark.parametrize(
    ("table", "keys", "message"),
    [
        ("reader", {"convolution": "recursiv"}, "reader.convolution"),
        ("reader", {"iterations": 0}, "reader.iterations"),
        ("reader", {"decoder": "rnn3"}, "reader.decoder"),
        ("reader", {"widht": 3}, "nearest: reader.width"),
        ("training", {"metric": "accuracy"}, "training.metric"),
        ("training", {"label_smoothing": 1.0}, "training.label_smoothing"),
        (
            "reader",
            {"convolution": "recursive_tied", "channels": [32, 16]},
            "channels must not fall",
        ),
    ],
)
def test_a_setting_out_of_range_is_one_line_with_its_key(table, keys, message):
    with pytest.raises(ConfigError, match=message) as caught:
        experiment_from_dict(changed(table, **keys))
    assert "\n" not in str(caught.value)


def test_a_table_of_another_task_is_unknown():
    with pytest.raises(ConfigError, match="glimpse"):
        experiment_from_dict({**TABLES, "glimpse": {}})


@pytest.mark.parametrize("name", ["read_words", "read_iiit5k"])
def test_shipped_experiments_read_with_the_same_model(name):
    one, other = load_experiment(name), load_experiment("read_words")
    assert one.reader == other.reader
    again = experiment_from_dict(experiment_to_dict(one))
    assert again == one


def test_single_settings_can_be_overridden():
    one = load_experiment("read_words", ["reader.attend=features"])
    assert not one.reader.reads_places
    one = load_experiment("read_words", ["reader.channels=[8, 8]"])
    assert one.reader.channels == (8, 8)
