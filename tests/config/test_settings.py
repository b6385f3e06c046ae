"""Settings and experiments: reading, refused values and error messages."""

import dataclasses
import functools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_settings import CAPTION, changed, line_of, message_of

from show_attend_tell.config.captioner import DECODERS, Decoder
from show_attend_tell.config.experiments import (
    caption_experiment,
    load_experiment,
    shipped_experiments,
    unused_settings,
)
from show_attend_tell.config.settings import (
    Experiment,
    experiment_from_dict,
    experiment_to_toml,
    read_experiment_file,
)


def test_absent_keys_default_to_the_papers_values():
    read = experiment_from_dict({k: v for k, v in CAPTION.items() if k != "hard"})
    assert read.encoder.network == "VGG19"
    assert read.encoder.layer == "block5_conv4"
    assert read.data.vocabulary_size == 10_000
    assert read.model.dropout == 0.5
    assert read.training.doubly_stochastic == 1.0
    hard = read.hard
    assert (hard.entropy_weight, hard.reinforce_weight) == (0.002, 1)
    assert (hard.reward_scale, hard.baseline_decay) == (0.1, 0.9)
    assert (hard.reward_per, hard.baseline) == ("caption", "moving")
    assert (hard.sampling_probability, hard.drawn_per) == (0.5, "minibatch")


@pytest.mark.parametrize(
    ("table", "key", "nearest"),
    [("training", "epoch", "epochs"), ("transformer", "headz", "heads")],
)
def test_an_unknown_key_is_named_with_file_nearest_key_and_remedy(table, key, nearest):
    message = message_of(changed(CAPTION, table, **{key: 3}))
    start = f"file.toml: {table}.{key}: unknown key, nearest: {table}.{nearest}; remove"
    assert message.startswith(start)


def test_unknown_and_missing_tables_are_named():
    assert "trainig: unknown key" in message_of({**CAPTION, "trainig": {}})
    without = {key: value for key, value in CAPTION.items() if key != "data"}
    assert "data: missing" in message_of(without)


INVALID = [
    ("data", "source", "imagenet"),
    ("data", "name", "../escape"),
    ("data", "vocabulary_size", 4),
    ("encoder", "image_size", 0),
    ("encoder", "resize", "stretch"),
    ("encoder", "precision", "float16"),
    ("model", "dropout", 1.0),
    ("model", "attention", "sharp"),
    ("training", "epochs", 0),
    ("training", "learning_rate", -1e-3),
    ("training", "learning_rate", float("inf")),
    ("training", "clip_norm", float("nan")),
    ("training", "hypotheses", 101),  # a beam has at most 100
    ("training", "label_smoothing", 1.0),
    ("training", "precision", "mixed_float16"),
    ("training", "clip_norm", True),
    ("training", "epochs", "3"),
    ("encoder", "mirror", 1),
    ("encoder", "mirror", "yes"),
    ("data", "also", {"more": True}),
    ("training", "seed", 2**31),
    ("decoding", "method", "magic"),
    ("decoding", "temperature", 0),
    ("decoding", "max_words", 0),
    ("decoding", "length_normalisation", -1),
    ("decoding", "seed", -1),
    ("decoding", "locations", "best"),
    ("hard", "sampling_probability", 1.5),
    ("hard", "baseline_decay", 1.0),
    ("hard", "drawn_per", "word"),
    ("hard", "baseline", "caption"),
    ("distillation", "temperature", 0.0),
    ("distillation", "truth_weight", 1.5),
]


@pytest.mark.parametrize(("table", "key", "value"), INVALID)
def test_an_invalid_value_is_named_and_shown(table, key, value):
    message = message_of(changed(CAPTION, table, **{key: value}))
    if isinstance(value, dict):
        ((inner, value),) = value.items()
        key = f"{key}.{inner}"
    assert f"{table}.{key}: " in message
    assert repr(value) in message


NAMES = ["../../outside", "/outside", "", ".", "..", "a/b", "a\\b", "nul\0", "~", "-a"]
NAMES += ["x" * 300, "a\nb", "a b", "\U0001f600", "a..b", "café", ".hidden", "a..", 5]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_folder_name_is_refused(name):
    for values in ({**CAPTION, "name": name}, changed(CAPTION, "data", name=name)):
        message = message_of(values)
        assert "name: " in message
        assert "Received: " in message
        assert len(message) < 300


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,30}", fullmatch=True))
def test_a_name_is_accepted_unless_it_has_two_dots_in_a_row(name):
    values = {**CAPTION, "name": name, "data": {"name": name, "source": "scenes"}}
    if ".." in name:
        assert "the name of a folder" in message_of(values)
    else:
        assert experiment_from_dict(values).name == name


DEEP = functools.reduce(lambda value, _: [value], range(10**5), [])
HUGE = [16**20_000, [16**20_000], 10**400, -(10**400), "x" * 10**5, DEEP]


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (table.name, key.name)
        for table in dataclasses.fields(Experiment)
        if dataclasses.is_dataclass(table.type)
        for key in dataclasses.fields(table.type)
    ],
)
def test_huge_values_are_quoted_in_part(table, key):
    for value in HUGE:
        message = message_of(changed(CAPTION, table, **{key: value}))
        assert re.search(rf"{table}\.{key}(\.0)?: ", message)  # .0 in a list
        assert len(message) < 300


def test_many_or_long_or_broken_keys_are_one_short_line():
    many = {f"key{k}": 1 for k in range(1000)}
    for keys in (many, {"k" * 10**5: 1}, {"a\nb": 1}):
        message = message_of(changed(CAPTION, "training", **keys))
        assert len(message) < 600
    assert "; 995 more" in message_of(changed(CAPTION, "training", **many))


def test_one_message_names_every_mistake_of_a_file():
    message = message_of(
        {**changed(CAPTION, "training", epochs=0), "decoding": {"beams": 2}}
    )
    assert "training.epochs" in message
    assert "decoding.beams" in message


def test_an_experiment_without_a_name_is_named_after_its_file(small_file):
    path = small_file.rename(small_file.with_name("mine.toml"))
    assert read_experiment_file(path).name == "small"
    path.write_text(path.read_text().replace('name = "small"\n', "", 1))
    assert read_experiment_file(path).name == "mine"


def test_a_byte_order_mark_is_ignored(small_file):
    before = read_experiment_file(small_file)
    small_file.write_bytes(b"\xef\xbb\xbf" + small_file.read_bytes())
    assert read_experiment_file(small_file) == before


def test_an_absent_file_is_one_line(tmp_path):
    message = line_of(read_experiment_file, tmp_path / "absent.toml")
    assert "no such settings file" in message


LONG, MANY = b"9" * 5000, 10**5
HOSTILE = [LONG, b"[" + LONG + b"]", b"[" * MANY, b"[" * MANY + b"]" * MANY]
HOSTILE = [b"a = " + value for value in (*HOSTILE, b"{a = " * MANY)]


@pytest.mark.parametrize(
    "content", [b"[data", b"\0", b"\xff\xfe", b"a = 1\na = 2", *HOSTILE]
)
def test_a_file_that_is_not_toml_is_refused(tmp_path, content):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    message = line_of(read_experiment_file, path)
    assert "broken.toml: cannot be read as TOML" in message
    assert len(message) < len(str(path)) + 250


def test_a_run_of_dotted_keys_is_refused_in_one_line(small_file):
    small_file.write_text(".".join(["a"] * 2_000) + " = 1\n" + small_file.read_text())
    message = line_of(read_experiment_file, small_file)
    assert "a: unknown key" in message
    assert len(message) < len(str(small_file)) + 250


@pytest.mark.parametrize("name", sorted(shipped_experiments()))
def test_every_shipped_experiment_is_valid(name):
    assert load_experiment(name).name == name


@pytest.fixture
def small_file(tmp_path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(experiment_to_toml(experiment_from_dict(CAPTION)), encoding="utf-8")
    return path


def test_an_unknown_experiment_lists_those_that_exist():
    message = line_of(load_experiment, "zzz")
    assert "Received: 'zzz'" in message
    assert all(name in message for name in shipped_experiments())
    message = line_of(load_experiment, "scene")
    assert message.endswith("Received: 'scene', nearest: scenes; correct the name")
    assert "coco_soft" not in message


def test_single_settings_can_be_changed(small_file):
    changes = ["training.learning_rate=1e-3", "encoder.mirror=true", "name=second"]
    changes += ["encoder.network = VGG16", 'encoder.layer="block5_conv3"']
    read, own = (
        load_experiment(str(small_file), changes),
        read_experiment_file(small_file),
    )
    new = {"network": "VGG16", "layer": "block5_conv3", "mirror": True}
    assert read == dataclasses.replace(
        own,
        name="second",
        encoder=dataclasses.replace(own.encoder, **new),
        training=dataclasses.replace(own.training, learning_rate=1e-3),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.epoch=3", "training.epoch: unknown key, nearest: training.epochs"),
        ("training.lr=3", "lr: unknown key, nearest: training.learning_rate"),
        ("training.wd=3", "wd: unknown key, nearest: training.weight_decay"),
        ("training.rate=3", "rate: unknown key, nearest: training.learning_rate"),
        ("trainings.epochs=3", "trainings: unknown key, nearest: training"),
        ("epochs=3", "epochs: unknown key, nearest: training.epochs"),
        ("model.zzzz=3", "model.zzzz: unknown key; remove it"),
        ("training.epochs=0", "training.epochs"),
        ("training.epochs", "table.key=value"),
        ("training.=3", "table.key=value"),
        ("name.first=3", "table.key=value"),
        ("training=3", "training: "),
        ("training.epochs=" + "9" * 5000, "cannot be read as TOML"),
        ("training.epochs=" + "[" * 10**5, "cannot be read as TOML"),
        ("x" * 10**5, "table.key=value"),
        ("name=../../outside", "name: must be the name of a folde"),
    ],
)
def test_an_invalid_change_is_refused_and_no_file_is_blamed(
    small_file, change, message
):
    line = line_of(load_experiment, str(small_file), [change])
    assert message in line
    assert "--set" in line
    assert small_file.name not in line
    assert len(line) < 400


def test_an_invalid_file_is_named_whatever_is_changed(small_file):
    small_file.write_text(small_file.read_text().replace("epochs = 2", "epochs = 0"))
    message = line_of(load_experiment, str(small_file), ["training.epochs=3"])
    assert "small.toml: training.epochs" in message


CIDER = {"objective": "cider", "batch_size": 60}


def test_reward_training_of_soft_attention_without_smoothing_is_valid():
    assert experiment_from_dict(changed(CAPTION, "training", **CIDER))


@pytest.mark.parametrize(
    ("changes", "table", "values", "message"),
    [
        (("training", CIDER), *row)
        for row in (
            ("hard", {"baseline": "samples"}, "needs samples = 2 or more"),
            ("model", {"attention": "hard"}, "'cider' must go with attention = 'soft'"),
            ("training", {"label_smoothing": 0.1}, "label_smoothing must be 0"),
            ("training", {"batch_size": 64}, "must be a multiple of hypotheses"),
            ("training", {"initial_share": 0.5}, "initial_share needs a model"),
        )
    ]
    + [
        (("training", {}), "training", {key: 1.0}, "need objective = 'cider'")
        for key in ("reward_bleu", "people_penalty")
    ]
    + [
        (("model", {"decoder": "transformer"}), *row)
        for row in (
            ("model", {"attention": "hard"}, "attention = 'hard' must go with"),
            ("model", {"attention": "none"}, "attention = 'none' must go with"),
            ("decoding", {"locations": "likeliest"}, "decoding.locations must be"),
            ("transformer", {"width": 30}, "must be a multiple of heads and of 4"),
            ("transformer", {"width": 6}, "must be a multiple of heads and of 4"),
            ("transformer", {"alpha_layer": 9}, "must be at most layers"),
            ("training", {"objective": "distil"}, "teachers must name models"),
            ("distillation", {"teachers": ["a"]}, "teachers must name models"),
        )
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused_with_one_value_received(
    changes, table, values, message
):
    tables = changed(CAPTION, changes[0], **changes[1])
    refused = message_of({**tables, table: {**tables[table], **values}})
    assert message in refused
    assert refused.count("Received") == 1
    assert "Value error" not in refused


def test_further_data_sets_have_weights_and_other_names():
    assert experiment_from_dict(changed(CAPTION, "data", also={"b": 2})).data.also == {
        "b": 2.0
    }
    for also in ({"b": 0}, {"b": -1}, {"../b": 1}, {"b": 1e9}, ["b"]):
        assert "data.also" in message_of(changed(CAPTION, "data", also=also))
    name = experiment_from_dict(changed(CAPTION, "data")).data.name
    assert "other than data.name" in message_of(
        changed(CAPTION, "data", also={name: 1})
    )


def test_an_experiment_without_a_task_has_captions():
    assert isinstance(caption_experiment("scenes", ["training.epochs=1"]), Experiment)


def test_shipped_experiments_have_no_settings_without_effect():
    for name in shipped_experiments():
        experiment = load_experiment(name)
        if isinstance(experiment, Experiment):
            assert unused_settings(experiment) == [], name


@pytest.mark.parametrize(
    ("experiment", "change", "message"),
    [
        ("everyday_all", "model.dropout=0.1", "set transformer.dropout"),
        ("everyday_all", "model.lstm_width=64", "no effect with model.decoder"),
        ("flickr8k_soft", "transformer.width=64", "model.decoder = 'transformer'"),
        ("flickr8k_soft", "hard.samples=5", "or set model.attention = 'hard'"),
    ],
)
def test_a_change_without_effect_is_refused(experiment, change, message):
    line = line_of(load_experiment, experiment, [change])
    assert line.startswith(f"--set: {change.partition('=')[0]} has no effect with ")
    assert message in line
    with_effect = {
        "everyday_all": ["transformer.dropout=0.1", "model.embedding_dropout=0.2"],
        "flickr8k_soft": ["model.attention=hard", "hard.samples=5"],
    }
    load_experiment(experiment, with_effect[experiment])


def test_keys_and_tables_that_a_further_decoder_does_not_read_are_refused(monkeypatch):
    # A decoder whose widths are in [model], and one with a table of its own.
    lstm = DECODERS["lstm"]._replace(unused=frozenset({"selector"}))
    monkeypatch.setitem(DECODERS, "lstm", lstm)
    monkeypatch.setitem(DECODERS, "third", Decoder("A third", "distillation", False))
    for change, advice in (
        ("model.selector=false", "leave it out"),
        ("distillation.temperature=3", "or set model.decoder = 'third'"),
    ):
        line = line_of(load_experiment, "flickr8k_soft", [change])
        assert "has no effect with model.decoder = 'lstm'" in line
        assert line.endswith(advice)


def test_a_decoder_that_selects_locations_may_have_hard_attention(monkeypatch):
    transformer = DECODERS["transformer"]._replace(selects_locations=True)
    monkeypatch.setitem(DECODERS, "transformer", transformer)
    model = {"decoder": "transformer", "attention": "hard"}
    assert experiment_from_dict(changed(CAPTION, "model", **model))
