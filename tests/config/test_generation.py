"""Settings of experiments that generate digits, and of DRAW's windows."""

import pytest

from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.generation import GenerationExperiment
from show_attend_tell.config.settings import (
    experiment_from_dict,
    experiment_to_toml,
    read_experiment_file,
)
from show_attend_tell.config.siblings import DigitExperiment
from show_attend_tell.runtime.errors import ConfigError

DRAWN = {
    "name": "drawn",
    "task": "generate",
    "data": {"name": "mnist", "source": "mnist"},
    "training": {"epochs": 2},
    "draw": {"steps": 3},
}
READ = DRAWN | {"task": "classify"}


def message_of(values: dict) -> str:
    with pytest.raises(ConfigError) as caught:
        experiment_from_dict(values, "file.toml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_task_generate_has_settings_of_its_own():
    read = experiment_from_dict(DRAWN)
    assert isinstance(read, GenerationExperiment)
    assert (read.data.binarise, read.data.validation) == ("dynamic", 10_000)
    assert (read.draw.steps, read.draw.latent, read.draw.attention) == (3, 50, True)
    assert (read.training.metric, read.training.clip_norm) == ("bound", 10)


def test_the_task_classify_takes_the_window_without_what_is_written():
    read = experiment_from_dict(READ)
    assert isinstance(read, DigitExperiment)
    assert (read.draw.steps, read.draw.read) == (3, 12)
    message = message_of(READ | {"draw": {"write": 5}})
    assert message.startswith("file.toml: draw.write: unknown key")


@pytest.mark.parametrize("key", ["read", "write"])
def test_a_window_has_no_more_filters_than_a_picture_has_pixels(key):
    message = message_of(DRAWN | {"draw": {key: 29}})
    assert f"`draw.{key}` must be at most the 28 pixels" in message
    whole = experiment_from_dict(DRAWN | {"draw": {key: 29, "attention": False}})
    assert getattr(whole.draw, key) == 29  # ignored


@pytest.mark.parametrize("values", [DRAWN, READ])
def test_resolved_settings_are_read_again(values, tmp_path):
    written, path = experiment_from_dict(values), tmp_path / "other.toml"
    path.write_text(experiment_to_toml(written), encoding="utf-8")
    assert read_experiment_file(path) == written
    assert load_experiment(str(path), ["draw.read=7"]).draw.read == 7


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("data", "binarise", "none"),
        ("data", "canvas", 27),
        ("draw", "read", 1),
        ("draw", "write", 0),
        ("draw", "steps", 0),
        ("draw", "latent", -1),
        ("draw", "attention", "soft"),
        ("draw", "log_variance_limit", 0.0),
        ("draw", "log_scale_limit", 21.0),
        ("training", "metric", "accuracy"),
    ],
)
def test_an_invalid_value_is_named_and_shown(table, key, value):
    message = message_of({**DRAWN, table: {**DRAWN[table], key: value}})
    assert f"{table}.{key}: " in message
    assert repr(value) in message


@pytest.mark.parametrize("table", ["glimpse", "classifier", "model", "decoding"])
def test_a_table_that_the_task_does_not_use_is_refused(table):
    message = message_of({**DRAWN, table: {}})
    assert message.startswith(f"file.toml: {table}: unknown key")


def test_the_table_draw_is_needed():
    without = {key: value for key, value in DRAWN.items() if key != "draw"}
    assert "draw: missing, add it" in message_of(without)


def test_a_misspelt_key_has_its_nearest():
    message = message_of({**DRAWN, "draw": {"step": 8}})
    assert "draw.step: unknown key, nearest: draw.steps" in message
