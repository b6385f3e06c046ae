"""Settings of experiments on digits: the tables of a task, and refused ones."""

import pytest
from tiny_run import experiment as captioning

from show_attend_tell.config import runs
from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.settings import (
    Experiment,
    experiment_from_dict,
    experiment_to_dict,
    experiment_to_toml,
    read_experiment_file,
)
from show_attend_tell.config.siblings import DigitExperiment
from show_attend_tell.runtime.errors import ConfigError, RunError

SMALL = {
    "name": "small",
    "task": "classify",
    "data": {"name": "mnist", "source": "mnist"},
    "training": {"epochs": 2},
    "glimpse": {"glimpses": 4},
}


def message_of(values: dict) -> str:
    with pytest.raises(ConfigError) as caught:
        experiment_from_dict(values, "file.toml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_task_chooses_the_tables():
    read = experiment_from_dict(SMALL)
    assert isinstance(read, DigitExperiment)
    assert (read.task, read.glimpse.glimpses, read.glimpse.patch) == ("classify", 4, 8)
    assert isinstance(captioning(task="caption"), Experiment)
    assert captioning(task="caption") == captioning()


def test_the_settings_of_a_captioner_are_written_as_before():
    """Without the key `task`, which files of earlier versions do not have."""
    assert captioning().task == "caption"
    assert "task" not in experiment_to_dict(captioning())


def test_resolved_settings_are_read_again(tmp_path):
    for values in (SMALL, SMALL | {"glimpse": None, "classifier": {"widths": [64]}}):
        written = experiment_from_dict(values)
        path = tmp_path / "other.toml"
        path.write_text(experiment_to_toml(written), encoding="utf-8")
        assert read_experiment_file(path) == written


@pytest.mark.parametrize("table", ["encoder", "model", "decoding", "hard", "reader"])
def test_a_table_that_the_task_does_not_use_is_refused(table):
    message = message_of({**SMALL, table: {}})
    assert message.startswith(f"file.toml: {table}: unknown key")


def test_a_captioner_has_no_glimpses():
    with pytest.raises(ConfigError, match=r"glimpse: unknown key"):
        captioning(glimpse={})
    with pytest.raises(ConfigError, match=r"data.source: .*Received: 'mnist'"):
        captioning(data={"source": "mnist"})


@pytest.mark.parametrize("task", ["draw", "", 3, None, ["classify"]])
def test_an_unknown_task_is_refused(task):
    assert "task: must be 'caption' or 'classify' or 'generate'" in message_of(
        {**SMALL, "task": task}
    )


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("data", "source", "flickr8k"),
        ("data", "canvas", 27),
        ("data", "clutter", -1),
        ("data", "validation", 0),
        ("glimpse", "patch", 0),
        ("glimpse", "glimpses", 0),
        ("glimpse", "deviation", 0.0),
        ("glimpse", "first", "corner"),
        ("glimpse", "baseline", "none"),
        ("glimpse", "policy_reaches", "everything"),
        ("training", "metric", "CIDEr"),
    ],
)
def test_an_invalid_value_is_named_and_shown(table, key, value):
    message = message_of({**SMALL, table: {**SMALL[table], key: value}})
    assert f"{table}.{key}: " in message
    assert repr(value) in message


def test_a_misspelt_key_of_an_optional_table_has_its_nearest():
    message = message_of({**SMALL, "glimpse": {"patches": 8}})
    assert "glimpse.patches: unknown key, nearest: glimpse.patch" in message


def test_one_of_glimpses_and_classifier_is_needed():
    without = {key: value for key, value in SMALL.items() if key != "glimpse"}
    assert "Received: none" in message_of(without)
    assert "Received: glimpse, classifier" in message_of({**SMALL, "classifier": {}})


@pytest.mark.parametrize("table", [{"glimpse": {"patch": 29}}, {"draw": {"read": 29}}])
def test_what_is_seen_of_a_picture_is_no_larger_than_it(table):
    message = message_of({**SMALL, "glimpse": None, **table})
    assert "must be at most the 28 pixels of data.canvas. Received: 29" in message
    wider = {**SMALL["data"], "canvas": 29}
    assert experiment_from_dict({**SMALL, "glimpse": None, **table, "data": wider})


def test_the_baseline_of_samples_needs_two():
    message = message_of({**SMALL, "glimpse": {"baseline": "samples"}})
    assert "needs samples = 2 or more" in message
    assert experiment_from_dict(
        {**SMALL, "glimpse": {"baseline": "samples", "samples": 2}}
    )


def test_single_settings_are_overridden(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(experiment_to_toml(experiment_from_dict(SMALL)), encoding="utf-8")
    changed = load_experiment(str(path), ["glimpse.scales=3", "data.canvas=60"])
    assert (changed.glimpse.scales, changed.data.canvas) == (3, 60)
    with pytest.raises(ConfigError, match="--set: glimpse.sigma: unknown key"):
        load_experiment(str(path), ["glimpse.sigma=3"])


@pytest.mark.parametrize(
    ("other", "change"),
    [
        (SMALL | {"glimpse": {"glimpses": 5}}, "glimpse.glimpses was 4"),
        (SMALL | {"glimpse": None, "classifier": {}}, "glimpse.patch was 8"),
        (None, "task was 'classify'"),
    ],
)
def test_a_run_is_not_resumed_with_other_settings(tmp_path, other, change):
    folder = runs.open_run(experiment_from_dict(SMALL), tmp_path, False, False)
    (folder / runs.CHECKPOINT).touch()
    other = captioning(name="small") if other is None else experiment_from_dict(other)
    with pytest.raises(RunError, match=change):
        runs.open_run(other, tmp_path, resume=True, overwrite=False)
