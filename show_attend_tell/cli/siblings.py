"""Define the verbs ``draw`` and ``read`` of the models beside the captioner."""

import sys
from pathlib import Path

import click

from show_attend_tell.cli.caption import print_results
from show_attend_tell.cli.options import (
    PATH,
    attention_option,
    load_settings,
    name_option,
    page_option,
    print_failures,
    runs_option,
    set_option,
)
from show_attend_tell.runtime.tensorflow_startup import start_keras

_MOST = 10_000  # pictures, whose file a viewer can open
_SUFFIXES = (".png", ".gif")


def _check_suffix(context, parameter, value: Path) -> Path:
    if value.suffix.lower() not in _SUFFIXES:
        raise click.BadParameter(f"must end in .png or .gif. Received: {value.name!r}")
    return value


@click.command()
@click.option(
    *("--experiment", "-e"),
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
    from show_attend_tell.config.runs import MODEL
    from show_attend_tell.siblings.draw.bound import Sampler
    from show_attend_tell.siblings.draw.figures import save_samples
    from show_attend_tell.siblings.models import load_model, shipped_file

    if settings is None:
        path, source = shipped_file("generate"), "the model in the package"
    else:
        path = source = runs / settings.name / MODEL
    model = load_model(path, "generate", settings)
    columns = columns or round(count**0.5)
    save_samples(out, Sampler(model)(count, seed), model, columns, scale)
    pictures = "picture" if count == 1 else "pictures"
    click.echo(f"{count} {pictures} of {source}: {out}")


@click.command()
@click.argument("crops", nargs=-1, required=True, type=PATH, metavar="CROP...")
@click.option(
    "--model",
    type=PATH,
    metavar="FILE",
    help="A .keras file of a reader, in place of the reader in the package.",
)
@click.option(
    "--beam",
    type=click.IntRange(min=1),
    default=1,
    help="Beam width; 1 takes the most probable character at every step.",
)
@click.option(
    "--lexicon",
    type=PATH,
    metavar="FILE",
    help="Text file of words, one a line: print the nearest of these words.",
)
@attention_option
@page_option
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="Write words to FILE, a .jsonl; resume an interrupted run.",
)
def read(crops, model, beam, lexicon, attention, page, out) -> None:
    """Read the words of crops, or of all crops in folders.

    A crop is a picture of one word with digits and letters. Capitals become lower
    case.
    """
    if out is not None and (attention is not None or page is not None):
        raise click.UsageError("--out cannot be combined with --attention or --html.")
    start_keras()
    from show_attend_tell.siblings.models import load_model, shipped_file
    from show_attend_tell.siblings.words.generation import Lexicon, Searcher
    from show_attend_tell.siblings.words.reading import read_into_file, require_jsonl

    if out is not None:
        require_jsonl(out)
    words = None if lexicon is None else Lexicon.load(lexicon)
    file = model or shipped_file("read")
    search = Searcher(load_model(file, "read"), beam, lexicon=words)
    if out is None:
        failed = _print_words(search, crops, attention, page)
    else:
        report = read_into_file(search, file, crops, out)
        failed = print_failures(report.failures)
        click.echo(report.summary())
    if failed:
        sys.exit(1)


def _print_words(search, crops, attention, page) -> bool:
    """Print each word; return whether a crop cannot be read."""
    from show_attend_tell.inference.photos import find_photos
    from show_attend_tell.siblings.words.figures import (
        describe_reading,
        draw_reading,
        require_places,
    )
    from show_attend_tell.siblings.words.reading import read_files

    for name, target in (("attention", attention), ("html", page)):
        if target is not None:
            require_places(search.model, name)
    results = read_files(search, list(find_photos(crops)))
    return print_results(
        results,
        lambda reading: f"{reading.word} (p {reading.probability:.3f})",
        "crops not read",
        page=(page, describe_reading, "character"),
        figures=(attention, {"": draw_reading}, ("png",)),
    )
