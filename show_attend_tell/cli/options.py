"""Define the options and the help that several verbs share."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import click

from show_attend_tell.cli.tasks import require_accepted
from show_attend_tell.runtime.errors import plural

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


def add_options(*options: Callable) -> Callable:
    """Return a decorator that adds several options to a verb, in this order."""

    def add(command: Callable) -> Callable:
        for option in reversed(options):
            command = option(command)
        return command

    return add


set_option = click.option(
    *("--set", "changes"),
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Override one setting, such as training.epochs=3; repeatable.",
)
experiment_options = add_options(
    click.option(
        *("--experiment", "-e"),
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
    help="Use only the first N photos of each split, in a separate data folder and "
    "run; pass the same N to prepare, features, train and eval.",
)

attention_option = click.option(
    "--attention",
    type=PATH,
    metavar="DIR",
    help="Write a figure of the attention per word or character into this folder.",
)
page_option = click.option(
    *("--html", "page"),
    type=PATH,
    metavar="FILE",
    help="Write one HTML page that shows the attention of each word or character.",
)
models_option = click.option(
    *("--model", "models"),
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="A .keras file, `shipped` or `shipped-lstm`, in place of the default model; "
    "repeatable, to average the word probabilities of several models.",
)
mirror_option = click.option(
    "--mirror",
    is_flag=True,
    help="Average the word probabilities over the photo and its mirror image.",
)
reranker_option = click.option(
    "--reranker",
    type=PATH,
    metavar="FILE",
    help="A file of fit-reranker: rank the hypotheses of the beam by their predicted "
    "CIDEr too. By default MODEL.reranker.npz, if it is beside a single model; `none` "
    "ranks without.",
)
encoder_weights_option = click.option(
    "--encoder-weights",
    type=PATH,
    metavar="FILE",
    help="Weights file of the encoder, in place of the weights in its settings.",
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


def print_failures(failures: Iterable) -> bool:
    """Print a line for each Failure; return whether any is not for low confidence."""
    from show_attend_tell.inference.result import LowConfidence

    failed = False
    for failure in failures:
        click.echo(click.format_filename(failure.reason), err=True)
        failed |= not isinstance(failure, LowConfidence)
    return failed


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
    if run_name is not None:
        settings = rename(settings, run_name)
    if limit is not None:  # last, so that a part is never named like the whole
        from show_attend_tell.config.experiments import limit_experiment

        settings = limit_experiment(settings, limit)
        click.echo(
            f"limited to the first {plural(limit, 'photo')} of each split, in the "
            f"order of the data set: data {settings.data.name}, run {settings.name}"
        )
    return settings
