"""Settings of experiments on digits and words: the tables of a task, refused ones."""

import pytest
from sibling_settings import CLASSIFY, GENERATE, LAYERS, READ, TASKS, WINDOW
from small_settings import CAPTION, changed, message_of
from tiny_run import experiment as captioning

from show_attend_tell.config import runs
from show_attend_tell.config.settings import (
    Experiment,
    experiment_from_dict,
    experiment_to_dict,
    experiment_to_toml,
    read_experiment_file,
)
from show_attend_tell.runtime.errors import TrainingError
from show_attend_tell.siblings.words.settings import WordSettings


def test_the_task_chooses_the_tables_and_their_defaults():
    assert experiment_from_dict(CLASSIFY).glimpse.patch == 8
    assert experiment_from_dict(WINDOW).draw.read == 12
    drawn, read = map(experiment_from_dict, (GENERATE, READ))
    assert (drawn.data.validation, drawn.training.metric) == (10_000, "bound")
    assert (read.training.optimizer, read.training.metric) == ("adamw", "word_accuracy")
    assert isinstance(captioning(task="caption"), Experiment)
    assert captioning(task="caption") == captioning()


def test_the_settings_of_a_captioner_are_written_without_the_task():
    assert captioning().task == "caption"
    assert "task" not in experiment_to_dict(captioning())


STRANGE = changed(CAPTION, "encoder", weights='x "é" \\ \u2028')


@pytest.mark.parametrize("values", [STRANGE, CLASSIFY, WINDOW, LAYERS, GENERATE, READ])
def test_resolved_settings_are_read_again(values, tmp_path):
    written, path = experiment_from_dict(values), tmp_path / "other.toml"
    path.write_text(experiment_to_toml(written), encoding="utf-8")
    assert read_experiment_file(path) == written


@pytest.mark.parametrize(
    ("task", "table"),
    [
        *(("classify", t) for t in ("encoder", "model", "decoding", "hard", "reader")),
        *(("generate", t) for t in ("glimpse", "classifier", "model", "decoding")),
        ("read", "glimpse"),
        ("caption", "glimpse"),
    ],
)
def test_a_table_that_the_task_does_not_use_is_refused(task, table):
    message = message_of({**TASKS[task], table: {}})
    assert message.startswith(f"file.toml: {table}: unknown key")


@pytest.mark.parametrize(
    ("task", "table", "key", "nearest"),
    [
        ("classify", "glimpse", "patches", "patch"),
        ("generate", "draw", "step", "steps"),
        ("read", "reader", "widht", "width"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_key(task, table, key, nearest):
    message = message_of(changed(TASKS[task], table, **{key: 3}))
    start = f"file.toml: {table}.{key}: unknown key, nearest: {table}.{nearest}; remove"
    assert message.startswith(start)


INVALID = {
    "classify": [
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
        ("glimpse", "zoom", "free"),
        ("glimpse", "zoom_limit", 1.0),
        ("glimpse", "zoom_limit", 8.5),
        ("glimpse", "zoom_deviation", 0.0),
        ("glimpse", "stop", "always"),
        ("glimpse", "stop_decay", -0.1),
        ("glimpse", "price", -0.1),
        ("glimpse", "price", 1.0),
        ("training", "metric", "CIDEr"),
    ],
    "generate": [
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
    "read": [
        ("data", "count", 0),
        ("data", "validation", -1),
        ("data", "source", "x"),
        ("reader", "convolution", "recursiv"),
        ("reader", "iterations", 0),
        ("reader", "decoder", "rnn3"),
        ("training", "metric", "accuracy"),
    ],
}


@pytest.mark.parametrize(
    ("task", "table", "key", "value"),
    [(task, *row) for task, rows in INVALID.items() for row in rows],
)
def test_an_invalid_value_is_named_and_shown(task, table, key, value):
    message = message_of(changed(TASKS[task], table, **{key: value}))
    assert f"{table}.{key}: " in message
    assert repr(value) in message


@pytest.mark.parametrize("task", ["draw", "", 3, None, ["classify"]])
def test_an_unknown_task_is_refused(task):
    message = message_of({**CLASSIFY, "task": task})
    assert "task: must be 'caption' or 'classify' or 'generate'" in message


def test_the_tables_of_the_model_are_needed():
    digits, drawn = ({**TASKS[task]} for task in ("classify", "generate"))
    del digits["glimpse"], drawn["draw"]
    assert "Received: none" in message_of(digits)
    assert "Received: glimpse, classifier" in message_of(CLASSIFY | {"classifier": {}})
    assert "draw: missing, add it" in message_of(drawn)
    writes = message_of(changed(WINDOW, "draw", write=5))
    assert writes.startswith("file.toml: draw.write: unknown key")


@pytest.mark.parametrize("table", [{"glimpse": {"patch": 29}}, {"draw": {"read": 29}}])
def test_what_is_seen_of_a_picture_is_no_larger_than_it(table):
    values = {**CLASSIFY, "glimpse": None, **table}
    message = message_of(values)
    assert "must be at most the 28 pixels of data.canvas. Received: 29" in message
    assert experiment_from_dict(changed(values, "data", canvas=29))


@pytest.mark.parametrize("key", ["read", "write"])
def test_a_window_has_no_more_filters_than_a_picture_has_pixels(key):
    message = message_of(changed(GENERATE, "draw", **{key: 29}))
    assert f"`draw.{key}` must be at most the 28 pixels" in message
    ignored = changed(GENERATE, "draw", **{key: 29, "attention": False})
    assert getattr(experiment_from_dict(ignored).draw, key) == 29


def test_the_baseline_of_samples_needs_two():
    message = message_of(changed(CLASSIFY, "glimpse", baseline="samples"))
    assert "needs samples = 2 or more" in message
    assert experiment_from_dict(
        changed(CLASSIFY, "glimpse", baseline="samples", samples=2)
    )


STOP = {"stop": "learned", "price": 0.01}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stop": "learned"}, "stop = 'learned' needs a price of a glimpse above 0"),
        ({"price": 0.01}, "price needs stop = 'learned'. Received: price = 0.01"),
        ({**STOP, "glimpses": 1}, "stop = 'learned' needs glimpses = 2 or more"),
        ({"zoom": "learned", "glimpses": 1}, "zoom = 'learned' needs glimpses = 2"),
    ],
)
def test_zoom_and_stop_need_their_settings(change, message):
    refusal = message_of(changed(CLASSIFY, "glimpse", **change))
    assert message in refusal
    assert "\n" not in refusal.strip()


def test_zoom_and_stop_are_accepted():
    assert experiment_from_dict(changed(CLASSIFY, "glimpse", **STOP, zoom="learned"))
    first = {"zoom": "learned", "glimpses": 1, "first": "learned"}
    assert experiment_from_dict(changed(CLASSIFY, "glimpse", **first))


def test_only_a_model_that_stops_is_chosen_by_reward():
    values = changed(CLASSIFY, "training", metric="reward")
    assert "'reward' needs glimpse.stop = 'learned'" in message_of(values)
    assert experiment_from_dict(changed(values, "glimpse", **STOP))


def test_each_source_of_words_has_its_number_of_validation_words():
    assert WordSettings("name", "words").held_out == 2000
    assert WordSettings("name", "iiit5k").held_out == 400
    assert WordSettings("name", "iiit5k", validation=7).held_out == 7


@pytest.mark.parametrize(
    "change", [{"count": 5}, {"fonts": "dir"}, {"words": "file"}, {"seed": 1}]
)
def test_crops_of_photos_have_no_settings_of_rendering(change):
    crops = changed(READ, "data", source="iiit5k", **change)
    assert "must go with source = 'words'" in message_of(crops)
    assert experiment_from_dict(changed(READ, "data", **change))


def test_tied_convolutions_need_channels_that_do_not_fall():
    tied = {"convolution": "recursive_tied", "channels": [32, 16]}
    assert "channels must not fall" in message_of(changed(READ, "reader", **tied))


@pytest.mark.parametrize(
    ("other", "change"),
    [
        (changed(CLASSIFY, "glimpse", glimpses=5), "glimpse.glimpses was 4"),
        (CLASSIFY | {"glimpse": None, "classifier": {}}, "glimpse.patch was 8"),
        (None, "task was 'classify'"),
    ],
)
def test_a_run_is_not_resumed_with_other_settings(tmp_path, other, change):
    folder = runs.open_run(experiment_from_dict(CLASSIFY), tmp_path, False, False)
    (folder / runs.CHECKPOINT).touch()
    other = captioning(name="small") if other is None else experiment_from_dict(other)
    with pytest.raises(TrainingError, match=change):
        runs.open_run(other, tmp_path, resume=True, overwrite=False)
