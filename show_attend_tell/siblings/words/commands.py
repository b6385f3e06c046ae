"""Define the verb ``read``, and the option of ``eval`` for words."""

import sys

import click

from show_attend_tell.cli.caption import print_results
from show_attend_tell.cli.options import (
    PATH,
    FilesVerb,
    attention_option,
    in_one_line,
    page_option,
    print_failures,
    refused_as_usage,
    require_photos_kept,
)
from show_attend_tell.config import MAX_BEAM
from show_attend_tell.runtime.keras_startup import start_keras

_FORMATS = ("png",)  # of figures

evaluation_lexicon = click.Option(
    ["--lexicon"],
    type=PATH,
    metavar="FILE",
    help="Text file of words, one a line: measure the nearest of these words, with an "
    "experiment that reads words.",
)


@click.command(
    cls=FilesVerb, interrupted="run the same command again; with --out it continues"
)
@click.argument("crops", nargs=-1, required=True, type=PATH, metavar="CROP...")
@click.option(
    "--model",
    type=PATH,
    metavar="FILE",
    help="A .safetensors file of a reader, in place of the reader in the package.",
)
@click.option(
    "--beam",
    type=click.IntRange(1, MAX_BEAM),
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
    # After `start_keras`, because the modules of the model import Keras.
    from show_attend_tell.siblings.words.generation import Lexicon, Searcher
    from show_attend_tell.siblings.words.models import READERS
    from show_attend_tell.siblings.words.reading import read_into_file, require_jsonl

    if out is not None:
        # Before the model is loaded, which takes longer.
        with refused_as_usage():
            require_jsonl(out)
    file = model or READERS.shipped_file()
    reader = READERS.load(file)
    words = None if lexicon is None else Lexicon.load(lexicon, reader.characters)
    search = Searcher(reader, beam, lexicon=words)
    if out is None:
        failed = _print_words(search, crops, attention, page)
    else:
        report = read_into_file(search, file, crops, out)
        failed = print_failures(report.failures)
        click.echo(in_one_line(report.summary()))
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
    inputs = list(find_photos(crops))
    if attention is not None:
        from show_attend_tell.inference.visualization.attention_figure import (
            draw_figures,
            require_figures,
        )

        require_photos_kept(attention, inputs, _FORMATS)
        require_figures(inputs, attention, [""], _FORMATS)
    results = read_files(search, inputs)
    if page is not None:
        from show_attend_tell.inference.visualization.pages import write_attention_page

        results = write_attention_page(results, page, describe_reading, "character")
    drawn = ((result, []) for result in results)
    if attention is not None:
        drawn = draw_figures(results, attention, {"": draw_reading}, _FORMATS)
    return print_results(
        drawn,
        lambda reading: f"{reading.word} (p {reading.probability:.3f})",
        "crops not read",
        page,
    )
