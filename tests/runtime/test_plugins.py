"""Plug-ins of other distributions: loaded, or left out with one line."""

import os
import sys
import textwrap

import pytest
from new_process import python

from show_attend_tell.runtime import plugins


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a plug-in: module's text -> the folder."""
    folder = tmp_path / "installed"
    monkeypatch.syspath_prepend(str(folder))
    plugins.installed.cache_clear()

    def install(name, text):
        about = folder / f"{name}-1.dist-info"
        about.mkdir(parents=True)
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
        (about / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
        (about / "entry_points.txt").write_text(
            f"[{plugins.GROUP}]\n{name} = {name}:plugin\n"
        )
        return folder

    yield install
    plugins.installed.cache_clear()
    for name in ("able", "broken", "good"):
        sys.modules.pop(name, None)


HEAD = "from show_attend_tell.runtime.plugins import Plugin, Tab, Task\n"
GOOD = HEAD + 'plugin = Plugin("good")\n'
COMMAND = (
    HEAD
    + "import click\n"
    + "plugin = Plugin('broken', commands=(click.Command({name!r}),))\n"
)
TASK = HEAD + (
    "def none(*arguments):\n    pass\n"
    "task = Task('{task}', none, none, {{'{source}': none}}, none, 'x',"
    " models=frozenset({{'{model}'}}), load_model={load}, evaluate_options={options})\n"
    "plugin = Plugin('broken', tasks=(task,))\n"
)
FREE = {"task": "a", "source": "b", "model": "C", "load": "none", "options": "()"}
TAB = HEAD + (
    "from pathlib import Path\n"
    "tab = Tab('photos', 'Photos', '', Path(), print)\n"
    "plugin = Plugin('broken', tab=tab)\n"
)
OPTION = "(__import__('click').Option(['--beam']),)"


def task(**names):
    return TASK.format(**{**FREE, **names})


BROKEN = {
    "raises": ("raise RuntimeError('two\\nlines')", "two lines"),
    "exits": ("raise SystemExit(3)", "3"),
    "cannot be imported": ("import no_such_package", "no_such_package"),
    "has no plug-in": ("x = 1", "plugin"),
    "is no plug-in": ("plugin = 3", "must be a Plugin. Received: int"),
    "has no tasks": (HEAD + "plugin = Plugin('broken', tasks=3)", "int"),
    "takes a command": (COMMAND.format(name="caption"), "command 'caption' is taken"),
    "takes a task": (task(task="caption"), "task 'caption' is taken by the captioner"),
    "takes a source": (task(source="scenes"), "source 'scenes' is taken"),
    "takes a class": (task(model="Captioner"), "model class 'Captioner' is taken"),
    "takes an option": (task(options=OPTION), "option of eval '--beam' is taken"),
    "cannot load its models": (task(load=None), "task 'a' needs load_model"),
    "takes a tab": (TAB, "tab 'photos' is taken by the captioner"),
    "takes a name": (
        HEAD + "plugin = Plugin('able')",
        "plug-in 'able' is taken by plug-in able",
    ),
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_plugin_is_one_line_and_the_rest_works(install, caplog, text):
    content, reason = BROKEN[text]
    install("able", HEAD + "plugin = Plugin('able')")
    install("broken", content)
    install("good", GOOD)
    names = [plugin.name for plugin in plugins.installed()]
    assert names[-2:] == ["able", "good"]
    assert "broken" not in names
    (line,) = caplog.messages
    assert line.startswith("plug-in broken (broken:plugin) is left out: ")
    assert reason in line
    assert "\n" not in line


def test_free_names_are_accepted(install, caplog):
    install("good", task().replace("'broken'", "'good'"))
    assert [p.name for p in plugins.installed()][-1] == "good"
    assert "a" in plugins.tasks()
    assert "b" in plugins.sources()
    assert not caplog.messages


def command(folder, *arguments):
    """Run the console script with a folder of further packages."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return python("-m", "show_attend_tell", *arguments, env=environment)


def test_the_command_line_prints_the_line_and_its_own_verbs_work(install):
    folder = install("broken", "raise RuntimeError('no')")
    helped = command(folder, "--help")
    assert helped.returncode == 0
    assert "  caption " in helped.stdout
    assert helped.stderr.splitlines() == [
        "plug-in broken (broken:plugin) is left out: no; correct or uninstall broken"
    ]


def test_captions_load_no_plugin(install):
    folder = install("broken", "raise RuntimeError('no')")
    done = command(folder, "caption", "absent.jpg")
    assert done.returncode == 1
    assert "plug-in" not in done.stderr
