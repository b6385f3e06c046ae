"""Define the options and the help that several verbs share."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

import click

from show_attend_tell.cli.tasks import require_accepted
from show_attend_tell.config.shipped import experiment_summary, shipped_experiments
from show_attend_tell.inference.request import CaptionRequest, Option

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class LocalPath(click.Path):
    """A path; a URL, which would name a folder on this machine, is wrong usage."""

    def convert(self, value, parameter, context):
        """Return the path."""
        if isinstance(value, str) and _URL.match(value):
            self.fail(
                f"must be a path. Received: {value!r}; mount the store, or copy its "
                "files. Only `features --store` takes a URL.",
                parameter,
                context,
            )
        return super().convert(value, parameter, context)


PATH = LocalPath(path_type=Path)


class ExperimentCommand(click.Command):
    """A verb whose ``--help`` ends with the shipped experiments."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog, and a table of the experiments."""
        super().format_epilog(ctx, formatter)
        if files := shipped_experiments():
            with formatter.section("Experiments"):
                formatter.write_dl(
                    [(name, experiment_summary(file)) for name, file in files.items()]
                )


def start_tensorflow() -> None:
    """Import TensorFlow without its banner, and Keras with TensorFlow as backend."""
    from show_attend_tell.runtime.tensorflow_startup import start_keras

    start_keras()


experiment_option = click.option(
    *("--experiment", "-e"),
    default="scenes",
    show_default=True,
    metavar="NAME|FILE",
    help="Name of a shipped experiment, or a .toml file.",
)
set_option = click.option(
    *("--set", "changes"),
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Override one setting, such as training.epochs=3; repeatable.",
)
work_option = click.option(
    "--work",
    type=PATH,
    default="prepared",
    show_default=True,
    help="Folder of prepared data sets.",
)
runs_option = click.option(
    "--runs",
    type=PATH,
    default="experiments/runs",
    show_default=True,
    help="Folder of training runs.",
)
name_option = click.option(
    "--name",
    metavar="NAME",
    help="Name of the run folder, in place of the experiment's name.",
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Use only the first N photos of each split, in a separate data folder and "
    "run; pass the same N to prepare, features, train and eval.",
)


def _parsed(parse: Callable, context, parameter, text: str | None):
    return None if text is None else parse(text)


def _request_option(request: type, field: dataclasses.Field) -> Callable:
    """Return the decorator that adds one field of a request to a verb."""
    option: Option = field.metadata["option"]
    flag = option.flag or "--" + field.name.replace("_", "-")
    details = {"help": option.help, "metavar": option.metavar}
    kind = get_type_hints(request)[field.name]
    if kind is bool:
        return click.option(flag, field.name, is_flag=True, help=option.help)
    if get_origin(kind) in (Union, UnionType):  # ``int | None``
        kind = get_args(kind)[0]
    if option.parse is not None:
        details["callback"] = functools.partial(_parsed, option.parse)
    elif get_origin(kind) is Literal:
        details["type"] = click.Choice(get_args(kind))
        details |= {"default": field.default, "show_default": True}
    elif kind in (int, float):
        ranges = {int: click.IntRange, float: click.FloatRange}
        details["type"] = ranges[kind](option.least, option.most)
    else:
        details["type"] = PATH
        details["multiple"] = get_origin(kind) is tuple
    return click.option(flag, field.name, **details)


_REQUEST_OPTIONS = {
    field.name: _request_option(CaptionRequest, field)
    for field in dataclasses.fields(CaptionRequest)
    if "option" in field.metadata and field.metadata["option"].help is not None
}
encoder_weights_option = _REQUEST_OPTIONS["encoder_weights"]
models_option = _REQUEST_OPTIONS["models"]
mirror_option = _REQUEST_OPTIONS["mirror"]
reranker_option = _REQUEST_OPTIONS["reranker"]


def request_options(command: Callable) -> Callable:
    """Add the options of a CaptionRequest to a verb, and pass it the ``request``."""

    @functools.wraps(command)
    def verb(**values):
        fields = {name: values.pop(name) for name in _REQUEST_OPTIONS}
        return command(request=CaptionRequest(**fields), **values)

    for option in reversed(_REQUEST_OPTIONS.values()):
        verb = option(verb)
    return verb


def figure_options(command: Callable) -> Callable:
    """Add the options of figures and pages to a verb."""
    options = (
        click.option(
            "--attention",
            type=PATH,
            metavar="DIR",
            help="Write a figure of the attention per word into this folder.",
        ),
        click.option(
            *("--format", "formats"),
            type=click.Choice(["png", "pdf", "svg"]),
            multiple=True,
            default=("png", "pdf"),
            show_default=True,
            help="File format of the figures; repeatable.",
        ),
        click.option(
            "--theme",
            type=click.Choice(["light", "dark"]),
            default="light",
            show_default=True,
            help="Background of the figures.",
        ),
        click.option(
            *("--html", "page"),
            type=PATH,
            metavar="FILE",
            help="Write one HTML page that shows the attention of each word.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def load_settings(
    name: str,
    changes: Sequence[str],
    run_name: str | None = None,
    limit: int | None = None,
    training: Mapping[str, object] | None = None,
):
    """Load an experiment, and apply the options of the running verb to it.

    Args:
        name: name or file of the experiment.
        changes: values of ``--set``.
        run_name: name of the run folder, in place of the experiment's name.
        limit: number of photos of each split.
        training: settings of the table ``[training]``; None keeps the experiment's.

    Raises:
        UsageError: the experiment's task does not accept the verb or an option.
    """
    from show_attend_tell.config.experiments import load_experiment, rename

    settings = load_experiment(name, changes)
    require_accepted(settings.task, settings.name)
    changed = [
        f"training.{key}={value}"
        for key, value in (training or {}).items()
        if value is not None
    ]
    if changed:
        settings = load_experiment(name, (*changes, *changed))
    if limit is not None:
        from show_attend_tell.config.experiments import limit_experiment, limit_message

        settings = limit_experiment(settings, limit)
        click.echo(limit_message(settings, limit))
    return settings if run_name is None else rename(settings, run_name)
