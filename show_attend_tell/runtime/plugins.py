"""Find plug-ins: models beside the captioner, with their own commands and tab.

A plug-in is a :class:`Plugin` that an installed distribution names under the
entry-point group :data:`GROUP`. Its module is imported by the first command that may
need it, so the module itself should import little: the functions of a plug-in import
Keras and what else takes time. ``docs/plugins.md`` shows a complete plug-in.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from show_attend_tell.runtime.errors import one_line

if TYPE_CHECKING:
    import click
    from fastapi import APIRouter

GROUP = "show_attend_tell.plugins"
_OWN = "show-attend-tell"  # the distribution whose plug-ins are loaded first
_CORE = "the captioner"
# Names that no plug-in may claim.
CORE_NAMES = {
    "task": ("caption",),
    "model class": ("Captioner",),
    "source": (
        "coco",
        "everyday",
        "flickr30k",
        "flickr8k",
        "folder",
        "karpathy",
        "scenes",
    ),
    "tab": ("folder", "photos"),
    "option of eval": (
        "--beam",
        "--boxes",
        "--captions",
        "--experiment",
        "--limit",
        "--mirror",
        "--model",
        "--name",
        "--reranker",
        "--runs",
        "--set",
        "--spice",
        "--split",
        "--tokenizer",
        "--work",
        "-e",
    ),
    "command": (
        "average",
        "calibrate",
        "caption",
        "compare",
        "convert",
        "demo",
        "doctor",
        "download",
        "eval",
        "export",
        "features",
        "fit-reranker",
        "prepare",
        "train",
    ),
}
_LOGGER = logging.getLogger(__name__)

# A row of `doctor`: OK, note (a missing feature) or problem; and its text.
Finding = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Task:
    """What experiments with a value of the key ``task`` are, and what commands do.

    Attributes:
        name: the value of the key.
        train: trains an experiment; it has the arguments of
            :func:`training.train.train` up to ``progress``, and returns a
            :class:`training.loop.Summary`.
        verify: raises an error if an experiment cannot be trained anew, see
            :func:`training.train.verify`; ``train --seeds --overwrite`` calls it before
            it replaces earlier runs.
        evaluate: measures the model of a run. It takes the experiment, the work folder,
            the folder of runs, the split or None, and a dictionary of the other options
            of ``eval``; it returns lines to print.
        prepare: functions that prepare data, by ``data.source``. Each takes a
            :class:`data_prep.preparation.Preparation` and returns a
            :class:`data_prep.preparation.Prepared`. The captioner's are in
            :data:`data_prep.prepare.SOURCES`.
        settings: returns the dataclass of an experiment's settings, of pydantic and
            with :data:`config.fields.STRICT`, as each of its tables. It has the fields
            ``name``, ``task``, ``data`` (with ``name`` and ``source``) and
            ``training``. By default it is :class:`config.settings.PlainExperiment`,
            which has no others.
        described: the end of "needs an experiment ..." in usage errors; by default
            "whose task is ...".
        models: names of the classes of its Keras models.
        load_model: loads a file of one of them, for ``export``.
        convert_model: writes a model of version 0.3 as a file of this version. It takes
            a :class:`conversion.keras_files.OldModel`, its path, and the new path.
        commands: commands that only some tasks accept, and this one does.
        accepts: command -> its options that only some tasks accept, and this one does;
            ``--name``, or ``--name value`` for a single value.
        evaluate_options: further options of ``eval``, for this task alone.
    """

    name: str
    train: Callable[..., Any]
    evaluate: Callable[..., list[str]]
    prepare: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    verify: Callable[..., None] | None = None
    settings: Callable[[], type] | None = None
    described: str = ""
    models: frozenset[str] = frozenset()
    load_model: Callable[[Path], Any] | None = None
    convert_model: Callable[[Any, Path, Path], None] | None = None
    commands: frozenset[str] = frozenset()
    accepts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    evaluate_options: tuple["click.Option", ...] = ()

    def accepted_options(self, command: str) -> set[str]:
        """Return the options of a command that this task accepts and others may not."""
        names = set(self.accepts.get(command, ()))
        if command == "eval":
            names.update(self.own_flags())
        return names

    def own_flags(self) -> list[str]:
        """Return the names of the options that the task adds to ``eval``."""
        return [flag for option in self.evaluate_options for flag in option.opts]


@dataclass(frozen=True, eq=False)
class Tab:
    """A tab of the web page.

    Attributes:
        name: id of its element, and of its folder under ``/static/``.
        title: the tab's label.
        intro: a sentence or two, shown above the tab.
        folder: static files. ``tab.html`` is the content of the tab.
        router: takes the server's queue of requests and returns the services. A service
            answers ``await queue.run(function, *arguments)``: one request is computed
            at a time. A tab with the path of another service is left out.
        scripts: JavaScript files of the folder. They call ``onStart(function)``, which
            is called when the page has loaded, and there ``addTab(name, onSelect)``.
        styles: style sheets of the folder.
        requires: packages without which the page has no such tab.
        remedy: the command that installs them.
    """

    name: str
    title: str
    intro: str
    folder: Path
    router: Callable[[Any], "APIRouter"]
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    remedy: str = ""

    def missing(self) -> list[str]:
        """Return the packages that it requires and that are not installed."""
        return [name for name in self.requires if find_spec(name) is None]


@dataclass(frozen=True, eq=False)
class Plugin:
    """What a plug-in adds.

    Attributes:
        name: its name.
        tasks: kinds of experiments.
        commands: further commands.
        tab: a tab of the web page, or None.
        doctor: returns the rows that ``doctor`` prints, or None.
    """

    name: str
    tasks: tuple[Task, ...] = ()
    commands: tuple["click.Command", ...] = ()
    tab: Tab | None = None
    doctor: Callable[[], Iterable[Finding]] | None = None

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield the kind and the name of everything that must have one owner."""
        yield "plug-in", self.name
        for command in self.commands:
            yield "command", command.name or ""
        if self.tab is not None:
            yield "tab", self.tab.name
        for task in self.tasks:
            yield "task", task.name
            yield from (("source", name) for name in task.prepare)
            yield from (("model class", name) for name in task.models)
            yield from (("option of eval", flag) for flag in task.own_flags())


# Once a process, so that the line about a broken plug-in is printed once.
@functools.cache
def installed() -> tuple[Plugin, ...]:
    """Return the plug-ins of this installation, those of the package first.

    A plug-in that cannot be loaded, or that claims a name which is taken, is left out
    with one line on standard error.
    """
    owners = {(kind, name): _CORE for kind in CORE_NAMES for name in CORE_NAMES[kind]}
    plugins = []
    for entry in sorted(entry_points(group=GROUP), key=_order):
        try:
            plugin = _load(entry, owners)
        # SystemExit: its module may end the program.
        except (Exception, SystemExit) as error:
            reason = one_line(error)
            _LOGGER.warning(
                "plug-in %s (%s) is left out: %s; correct or uninstall %s",
                entry.name,
                entry.value,
                reason,
                _distribution(entry) or "it",
            )
            continue
        # Only now, as a plug-in that is left out claims no names.
        owners.update(dict.fromkeys(plugin.names(), f"plug-in {plugin.name}"))
        plugins.append(plugin)
    return tuple(plugins)


def _distribution(entry: EntryPoint) -> str:
    return "" if entry.dist is None else entry.dist.name


def _order(entry: EntryPoint) -> tuple[bool, str, str]:
    # Ours first, so that no stranger can take their names.
    distribution = _distribution(entry)
    return distribution != _OWN, entry.name, distribution


def _load(entry: EntryPoint, owners: Mapping[tuple[str, str], str]) -> Plugin:
    """Import a plug-in.

    Raises:
        ValueError: it is no plug-in, or a name is taken.
    """
    plugin = entry.load()
    if not isinstance(plugin, Plugin):
        raise ValueError(f"must be a Plugin. Received: {type(plugin).__name__}")
    for task in plugin.tasks:
        if task.models and task.load_model is None:
            raise ValueError(f"the task {task.name!r} needs load_model for its models")
    for kind, name in plugin.names():
        owner = owners.get((kind, name))
        if owner is not None:
            raise ValueError(f"the {kind} {name!r} is taken by {owner}")
    return plugin


def tasks() -> dict[str, Task]:
    """Return the tasks of all plug-ins by name."""
    return {task.name: task for plugin in installed() for task in plugin.tasks}


def sources() -> dict[str, Callable[[Any], Any]]:
    """Return the functions that prepare data, by the name of their source."""
    found: dict[str, Callable[[Any], Any]] = {}
    for task in tasks().values():
        found.update(task.prepare)
    return found


def commands() -> dict[str, "click.Command"]:
    """Return the commands of all plug-ins by name."""
    return {
        command.name or "": command
        for plugin in installed()
        for command in plugin.commands
    }


def tabs() -> list[Tab]:
    """Return all tabs, those whose packages are not installed too."""
    return [plugin.tab for plugin in installed() if plugin.tab is not None]
