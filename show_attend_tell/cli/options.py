"""Define the options and the help that several verbs share."""

import contextlib
import dataclasses
import functools
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from show_attend_tell.cli.captioning import require_accepted, tasks
from show_attend_tell.inference.request import CaptionRequest, Option
from show_attend_tell.runtime.errors import CaptionError, plural
from show_attend_tell.runtime.keras_startup import chosen_backend

# How the user continues a verb after Ctrl-C.
CONTINUES = "run the same command again to continue"
START_OVER = "run the same command again to start over"


class Verb(click.Command):
    """A command of the console script.

    Args:
        interrupted: how the user continues after Ctrl-C, printed after "interrupted; ";
            or a function that returns it for the words of the command line.
        *arguments, **options: of :class:`click.Command`.
    """

    def __init__(
        self,
        *arguments,
        interrupted: str | Callable[[Sequence[str]], str] = START_OVER,
        **options,
    ):
        super().__init__(*arguments, **options)
        self._interrupted = interrupted

    def remedy(self, words: Sequence[str]) -> str:
        """Return how the user continues after Ctrl-C."""
        if callable(self._interrupted):
            return self._interrupted(words)
        return self._interrupted


_UNPRINTED = ("Cc", "Zl", "Zp")  # control codes, separators of lines and paragraphs
_SURROGATE = "Cs"  # a byte of a path that is no text, or part of a forged text
# At least two letters: C:// is a drive of Windows.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class LocalPath(click.Path):
    """A path; a URL, which would name a folder on this machine, is wrong usage."""

    def convert(self, value, parameter, context):
        """Return the path."""
        if isinstance(value, str) and _URL.match(value):
            self.fail(
                f"must be a path. Received: {value!r}; mount the store, or copy its "
                "files.",
                parameter,
                context,
            )
        return super().convert(value, parameter, context)


PATH = LocalPath(path_type=Path, readable=False)  # unreadable photos are listed


class PagePath(LocalPath):
    """The file of a page.

    Another ending is wrong usage: in ``--html *.jpg`` it is a photo, which the page
    would replace.
    """

    def convert(self, value, parameter, context):
        """Return the path."""
        path = super().convert(value, parameter, context)
        if path.suffix.lower() not in (".html", ".htm"):
            self.fail(
                f"must end in .html. Received: {in_one_line(path)}; name the page.",
                parameter,
                context,
            )
        return path


class FilesVerb(Verb):
    """A verb whose arguments are files, whose names may begin with a dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; ``-dash.jpg`` is a file if it exists and is no option.

        A shell passes that name for ``*.jpg``. As ``./-dash.jpg`` click takes it.
        """
        parameters = self.get_params(ctx)
        options = {name for each in parameters for name in each.opts}
        words = []
        for word in args:
            is_option = word.partition("=")[0] in options or word in ("-", "--")
            if word.startswith("-") and not is_option and os.path.lexists(word):
                word = os.path.join(os.curdir, word)
            words.append(word)
        return super().parse_args(ctx, words)


def add_options(*options: Callable) -> Callable:
    """Return a decorator that adds several options to a verb, in this order."""

    def add(command: Callable) -> Callable:
        # Of stacked decorators the lowest is applied first, and the help lists it last.
        for option in reversed(options):
            command = option(command)
        return command

    return add


set_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Override one setting, such as training.epochs=3; repeatable.",
)
experiment_options = add_options(
    click.option(
        "--experiment",
        "-e",
        default="scenes",
        metavar="NAME|FILE",
        help="Name of a shipped experiment, or a .toml file.",
    ),
    set_option,
)
work_option = click.option(
    "--work",
    type=PATH,
    default="prepared",
    help="Folder of prepared data sets.",
)
runs_option = click.option(
    "--runs",
    type=PATH,
    default="experiments/runs",
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
    help="Use only the first N photos, or digits, of each split, in a separate data "
    "folder and run; pass the same N to prepare, features, train and eval.",
)

attention_option = click.option(
    "--attention",
    type=LocalPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write a figure of the attention per word or character into this folder.",
)
page_option = click.option(
    "--html",
    "page",
    type=PagePath(path_type=Path, readable=False, dir_okay=False),
    metavar="FILE",
    help="Write one HTML page that shows the attention of each word or character.",
)
cluster_options = add_options(
    click.option(
        "--cluster",
        metavar="auto|HOST:PORT",
        help="Run on a Ray cluster: the cluster at this address, or with auto the "
        "cluster on this machine, which is started if necessary.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Worker processes of the cluster; by default one per processor.",
    ),
)


def require_cluster(cluster: str | None, workers: int | None) -> None:
    """Raise a usage error if --workers is used without --cluster."""
    if cluster is None and workers is not None:
        raise click.UsageError("--workers needs --cluster.")


def require_tensorflow(cluster: str | None) -> None:
    """Raise a usage error if --cluster is used with another backend."""
    if cluster is not None and chosen_backend() != "tensorflow":
        raise click.UsageError(
            f"--cluster needs TensorFlow. Received: the backend {chosen_backend()}; "
            "set KERAS_BACKEND=tensorflow, and run pip install "
            "'show-attend-tell[cluster]'"
        )


def require_jax() -> None:
    """Raise a usage error if one training on a cluster would not run on JAX."""
    if chosen_backend() != "jax":
        raise click.UsageError(
            "--cluster trains one run on JAX alone. Received: the backend "
            f"{chosen_backend()}; run pip install 'show-attend-tell[jax,cluster]', and "
            "set KERAS_BACKEND=jax"
        )


def require_photos_kept(
    folder: Path, photos: Iterable[object], formats: Iterable[str]
) -> None:
    """Raise a usage error if a figure of --attention could replace one of the photos.

    Args:
        folder: folder of the figures.
        photos: photos of the command; only paths matter.
        formats: formats of the figures, which are the endings of their files.
    """
    endings = tuple(f".{kind}" for kind in formats)
    folder = folder.resolve()
    for photo in photos:
        if not isinstance(photo, Path) or photo.suffix.lower() not in endings:
            continue
        if photo.parent.resolve() == folder:
            raise click.UsageError(
                "--attention must be another folder than that of photos in the "
                f"figures' format. Received: {in_one_line(folder)}, which has "
                f"{in_one_line(photo.name)}; name another folder."
            )


@contextlib.contextmanager
def refused_as_usage() -> Iterator[None]:
    """Raise a usage error in place of a CaptionError about values of options."""
    try:
        yield
    except CaptionError as error:
        raise click.UsageError(str(error)) from None


def in_one_line(text: str | os.PathLike[str]) -> str:
    """Return a path or a message to print; escape line breaks and control codes.

    A terminal obeys those in the name of a file: a return hides what stands before it.
    """
    printed = []
    for character in os.fsdecode(text):
        category = unicodedata.category(character)
        if category in _UNPRINTED:
            printed.append(repr(character)[1:-1])
        elif category == _SURROGATE:
            printed.append("\N{REPLACEMENT CHARACTER}")
        else:
            printed.append(character)
    return "".join(printed)


def print_failures(failures: Iterable) -> bool:
    """Print a line for each Failure; return whether any is not for low confidence."""
    from show_attend_tell.inference.result import LowConfidence

    failed = False
    for failure in failures:
        click.echo(in_one_line(failure.reason), err=True)
        failed |= not isinstance(failure, LowConfidence)
    return failed


def _request_option(request: type, field: dataclasses.Field) -> Callable:
    """Return the decorator that adds one field of a request to a verb."""
    option: Option = field.metadata["option"]
    flag = option.flag or "--" + field.name.replace("_", "-")
    details: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
    kind = get_type_hints(request)[field.name]
    if kind is bool:
        return click.option(flag, field.name, is_flag=True, help=option.help)
    if get_origin(kind) in (Union, UnionType):  # ``int | None``
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        details["type"] = click.Choice(get_args(kind))
        details |= {"default": field.default, "show_default": True}
    elif kind is int:
        lowest = None if option.min is None else int(option.min)
        highest = None if option.max is None else int(option.max)
        details["type"] = click.IntRange(lowest, highest)
    elif kind is float:
        details["type"] = click.FloatRange(option.min, option.max)
    elif kind is not str:
        details["type"] = PATH
        details["multiple"] = get_origin(kind) is tuple
    return click.option(flag, field.name, **details)


_REQUEST_OPTIONS = {
    field.name: _request_option(CaptionRequest, field)
    for field in dataclasses.fields(CaptionRequest)
    if "option" in field.metadata
}
encoder_weights_option = _REQUEST_OPTIONS["encoder_weights"]
models_option = _REQUEST_OPTIONS["models"]
mirror_option = _REQUEST_OPTIONS["mirror"]
reranker_option = _REQUEST_OPTIONS["reranker"]


def request_options(command: Callable) -> Callable:
    """Add the options of a CaptionRequest to a verb, and pass it the ``request``."""

    # This also copies the options that click has stored as attributes of the function.
    @functools.wraps(command)
    def verb(**values):
        fields = {name: values.pop(name) for name in _REQUEST_OPTIONS}
        with refused_as_usage():
            request = CaptionRequest(**fields)
        return command(request=request, **values)

    return add_options(*_REQUEST_OPTIONS.values())(verb)


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
    from show_attend_tell.config import experiments

    settings = experiments.load_experiment(name, changes)
    require_accepted(tasks()[settings.task], settings.name)
    changed = [
        f"training.{key}={value}"
        for key, value in (training or {}).items()
        if value is not None
    ]
    if changed:
        # Only now: a task that lacks these settings would be refused for a setting that
        # the user did not name, in place of the option.
        settings = experiments.load_experiment(name, (*changes, *changed))
    if run_name is not None:
        settings = experiments.rename(settings, run_name)
    if limit is not None:  # last, so that a part is never named like the whole
        settings = experiments.limit_experiment(settings, limit)
        sets = [settings.data.name, *getattr(settings.data, "also", ())]
        click.echo(
            f"limited to the first {plural(limit, 'item')} of each split, in the "
            f"order of the data set: data {' and '.join(sets)}, run {settings.name}"
        )
    return settings
