"""What the plug-ins of the package declare: verbs, options, classes and sources."""

from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest
from tiny_digits import tiny_draw, tiny_ram
from tiny_reader import random_reader
from tiny_siblings import MODELS_OF

from data_prep.prepare import prepare
from show_attend_tell.cli.captioning import task_of_model, tasks
from show_attend_tell.cli.main import cli
from show_attend_tell.config.experiments import (
    caption_experiment,
    shipped_experiments,
)
from show_attend_tell.runtime import plugins
from show_attend_tell.runtime.errors import ConfigError, DataError


def test_the_package_has_two_plugins():
    assert [plugin.name for plugin in plugins.installed()] == ["digits", "words"]
    assert list(plugins.tasks()) == ["classify", "generate", "read"]
    assert list(plugins.commands()) == ["draw", "read"]


def test_what_a_task_accepts_are_verbs_and_their_options():
    commands = cli.commands | plugins.commands()
    for task in plugins.tasks().values():
        assert task.commands <= commands.keys()
        for verb, accepted in task.accepts.items():
            options = {name for p in commands[verb].params for name in p.opts}
            assert {use.split(" ")[0] for use in accepted} <= options


def test_every_shipped_experiment_has_a_task():
    named = {
        line.split('"')[1]
        for file in shipped_experiments().values()
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("task = ")
    }
    assert named | {"caption"} == tasks().keys()


def test_an_experiment_of_another_task_is_no_experiment_with_captions():
    with pytest.raises(ConfigError, match="whose task is 'classify'"):
        caption_experiment("ram_mnist")


@pytest.mark.parametrize("task", MODELS_OF)
def test_the_declared_classes_are_the_classes_that_are_loaded(task):
    names = {model.__name__ for model in MODELS_OF[task].classes}
    assert plugins.tasks()[task].models == names


@pytest.mark.parametrize("task", MODELS_OF)
def test_every_source_of_the_settings_is_prepared(task):
    chosen = plugins.tasks()[task]
    data = get_type_hints(chosen.settings())["data"]
    assert set(get_args(get_type_hints(data)["source"])) == chosen.prepare.keys()


@pytest.mark.parametrize("source", ["mnist", "iiit5k"])
def test_a_source_without_a_folder_is_one_line(tmp_path, source):
    experiment = SimpleNamespace(data=SimpleNamespace(name="tiny", source=source))
    message = f"`data` must be the folder of {source}'s files.*pass the folder with"
    with pytest.raises(DataError, match=message):
        prepare(experiment, None, tmp_path / "work")


@pytest.mark.parametrize(
    ("name", "make"),
    [("classify", tiny_ram), ("generate", tiny_draw), ("read", random_reader)],
)
def test_a_model_file_names_its_task(tmp_path, name, make):
    make().save(tmp_path / "model.safetensors")
    assert task_of_model(tmp_path / "model.safetensors").name == name


def test_help_names_the_verbs_of_plugins_and_loads_no_model(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "  draw " in out
    assert "  read " in out
    assert "--lexicon FILE" in run("eval", "--help")[1]


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["draw", "--out", "a.png"], "run the same command again to start over"),
        (["read", "a.png"], "run the same command again; with --out it continues"),
    ],
)
def test_the_remedy_of_an_interruption_is_that_of_the_verb(
    run, monkeypatch, arguments, remedy
):
    def interrupt(context):
        raise KeyboardInterrupt

    monkeypatch.setattr(plugins.commands()[arguments[0]], "invoke", interrupt)
    code, _, err = run(*arguments)
    assert (code, err.strip()) == (130, f"interrupted; {remedy}")
