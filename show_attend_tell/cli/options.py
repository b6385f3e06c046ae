"""Define the options that several verbs of the command line share."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import click

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class LocalPath(click.Path):
    """A path; a URL, which would become the name of a folder here, is wrong usage."""

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
    help="Use the first N photos of each split only, in a data folder and a run of "
    "their own; pass it to prepare, features, train and eval alike.",
)
encoder_weights_option = click.option(
    "--encoder-weights",
    type=PATH,
    metavar="FILE",
    help="Weights file of the encoder, in place of the weights in its settings.",
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


def is_of_digits(settings) -> bool:
    """Return whether an experiment is on digits, and has no captions."""
    return settings.task != "caption"


def require_captions(settings) -> None:
    """Raise a usage error if an experiment has no captions."""
    if is_of_digits(settings):
        raise click.UsageError(
            f"needs an experiment with captions. Received: {settings.name}, whose "
            f"task is {settings.task!r}."
        )


def load_settings(
    name: str,
    changes: Sequence[str],
    run_name: str | None = None,
    limit: int | None = None,
):
    """Load an experiment; apply changes, a limit of photos and a name of the run."""
    from show_attend_tell.config.experiments import load_experiment, rename

    settings = load_experiment(name, changes)
    if limit is not None:
        require_captions(settings)
        from show_attend_tell.config.experiments import limit_experiment, limit_message

        settings = limit_experiment(settings, limit)
        click.echo(limit_message(settings, limit))
    return settings if run_name is None else rename(settings, run_name)
