"""Options that several verbs of the command line share."""

from collections.abc import Callable
from pathlib import Path

import click

PATH = click.Path(path_type=Path)


def start_tensorflow() -> None:
    """Import TensorFlow quietly, when a verb that needs it runs."""
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()


experiment_option = click.option(
    *("--experiment", "-e"),
    default="scenes",
    show_default=True,
    metavar="NAME|FILE",
    help="A shipped experiment, or a .toml file.",
)
set_option = click.option(
    *("--set", "changes"),
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Change one setting, such as training.epochs=3; may be repeated.",
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
encoder_weights_option = click.option(
    "--encoder-weights",
    type=PATH,
    metavar="FILE",
    help="Weights of the encoder, instead of those the settings name.",
)


def figure_options(command: Callable) -> Callable:
    """Add the options of figures and pages to a verb."""
    options = (
        click.option(
            "--attention",
            type=PATH,
            metavar="DIR",
            help="Draw attention here.",
        ),
        click.option(
            *("--format", "formats"),
            type=click.Choice(["png", "pdf", "svg"]),
            multiple=True,
            default=("png", "pdf"),
            show_default=True,
            help="Of the drawings; may be repeated.",
        ),
        click.option(
            "--theme",
            type=click.Choice(["light", "dark"]),
            default="light",
            show_default=True,
            help="Ground of the drawings.",
        ),
        click.option(
            *("--html", "page"),
            type=PATH,
            metavar="FILE",
            help="Write one page that shows where each word looked.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
