"""Define the verb ``draw``."""

from pathlib import Path

import click

from show_attend_tell.cli.options import (
    PATH,
    Verb,
    load_settings,
    name_option,
    runs_option,
    set_option,
)
from show_attend_tell.runtime.errors import plural
from show_attend_tell.runtime.keras_startup import start_keras

_MOST = 10_000  # pictures
_MOST_PIXELS = 1_000_000_000  # of all frames of a file, three bytes of memory each
_GIF_SIDE = 65_535  # pixels, the most that the format has
_SUFFIXES = (".png", ".gif")


def _check_suffix(context, parameter, value: Path) -> Path:
    if value.suffix.lower() not in _SUFFIXES:
        raise click.BadParameter(f"must end in .png or .gif. Received: {value.name!r}")
    return value


@click.command(cls=Verb)
@click.option(
    "--experiment",
    "-e",
    metavar="NAME|FILE",
    help="Shipped experiment that generates, or a .toml file: draw with the model of "
    "its run. By default the model in the package.",
)
@set_option
@runs_option
@name_option
@click.option(
    "--count",
    type=click.IntRange(1, _MOST),
    default=100,
    help="Number of pictures.",
)
@click.option(
    "--columns",
    type=click.IntRange(min=1),
    metavar="N",
    help="Pictures in a row; by default as many as rows.",
)
@click.option(
    "--scale",
    type=click.IntRange(1, 20),
    default=3,
    help="Side of a drawn pixel in the file.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    help="Seed of the pictures.",
)
@click.option(
    "--out",
    type=PATH,
    default="drawn.png",
    callback=_check_suffix,
    metavar="FILE",
    help="A .png file of the pictures, or a .gif file that shows each step and the "
    "windows that write.",
)
def draw(experiment, changes, runs, name, count, columns, scale, seed, out) -> None:
    """Draw new pictures, such as digits, with a trained model.

    Without --experiment, --name and --set, draw with the model in the package, trained
    as draw_mnist.
    """
    settings = None
    if experiment or changes or name:
        settings = load_settings(experiment or "draw_mnist", changes, name)
    start_keras()
    # After `start_keras`, because the modules of the model import Keras.
    from show_attend_tell.config.runs import MODEL
    from show_attend_tell.siblings.digits.draw.bound import Sampler
    from show_attend_tell.siblings.digits.draw.figures import grid_size, save_samples
    from show_attend_tell.siblings.digits.draw.models import GENERATORS

    if settings is None:
        source = "the model in the package"
        model = GENERATORS.load_shipped()
    else:
        source = runs / settings.name / MODEL
        model = GENERATORS.load(source, settings)
    columns = min(columns or round(count**0.5), count)
    width, height = grid_size(count, columns, model.height, model.width, scale)
    moves = out.suffix.lower() == ".gif"
    # The canvases c_0 to c_T, and the last one again.
    frames = model.settings.steps + 2 if moves else 1
    too_long = moves and max(width, height) > _GIF_SIDE
    # Before the pictures are drawn, which takes longer.
    if too_long or width * height * frames > _MOST_PIXELS:
        raise click.UsageError(
            f"--count, --columns and --scale make a file of {width} x {height} pixels, "
            f"{plural(frames, 'frame')}: too large; lower them."
        )
    save_samples(out, Sampler(model)(count, seed), model, columns, scale)
    pictures = "picture" if count == 1 else "pictures"
    click.echo(f"{count} {pictures} of {source}: {out}")
