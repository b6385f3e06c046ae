"""Define the verb ``read``."""

import sys

import click

from show_attend_tell.cli.options import PATH, start_tensorflow


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
    show_default=True,
    help="Beam width; 1 takes the most probable character at every step.",
)
@click.option(
    "--lexicon",
    type=PATH,
    metavar="FILE",
    help="Text file of words, one a line: print the nearest of these words.",
)
@click.option(
    "--attention",
    type=PATH,
    metavar="DIR",
    help="Write a figure of the attention per character into this folder.",
)
@click.option(
    *("--html", "page"),
    type=PATH,
    metavar="FILE",
    help="Write one HTML page that shows the attention of each character.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="Write words to FILE, a .jsonl; resume an interrupted run.",
)
def read(crops, model, beam, lexicon, attention, page, out) -> None:
    """Read the words of crops, or of all crops in folders.

    A crop is a picture of one word with digits and letters. Capitals become small
    letters.
    """
    if out is not None and (attention is not None or page is not None):
        raise click.UsageError("--out cannot be combined with --attention or --html.")
    start_tensorflow()
    from show_attend_tell.siblings.model_files import READER, shipped_file
    from show_attend_tell.siblings.words.generation import Searcher
    from show_attend_tell.siblings.words.lexicon import Lexicon
    from show_attend_tell.siblings.words.reading import read_into_file, require_jsonl
    from show_attend_tell.siblings.words.task import load_model

    if out is not None:
        require_jsonl(out)
    words = None if lexicon is None else Lexicon.load(lexicon)
    file = model or shipped_file(READER)
    search = Searcher(load_model(file), beam)
    if out is None:
        failed = _print_words(search, crops, words, attention, page)
    else:
        report = read_into_file(search, file, crops, out, words)
        failed = report.failures
        for failure in failed:
            click.echo(click.format_filename(failure.reason), err=True)
        click.echo(report.summary())
    if failed:
        sys.exit(1)


def _print_words(search, crops, lexicon, attention, page) -> int:
    """Print each word; return the number of crops that cannot be read."""
    from show_attend_tell.inference.photos import find_photos
    from show_attend_tell.inference.result import Failure
    from show_attend_tell.inference.visualization.attention_figure import draw_figures
    from show_attend_tell.inference.visualization.pages import write_attention_page
    from show_attend_tell.siblings.words.figures import (
        describe_reading,
        draw_reading,
        require_places,
    )
    from show_attend_tell.siblings.words.reading import read_files

    for name, target in (("attention", attention), ("html", page)):
        if target is not None:
            require_places(search.model, name)
    results = read_files(search, list(find_photos(crops)), lexicon)
    if page is not None:
        results = write_attention_page(results, page, describe_reading, "character")
    drawn = ((result, []) for result in results)
    if attention is not None:
        drawn = draw_figures(results, attention, {"": draw_reading}, ("png",))
    failures = 0
    for result, figures in drawn:
        if isinstance(result, Failure):
            failures += 1
            click.echo(click.format_filename(result.reason), err=True)
            continue
        name = click.format_filename(result.path)
        click.echo(f"{name}: {result.word} (p {result.probability:.3f})")
        for figure in figures:
            click.echo(f"figure: {click.format_filename(figure)}", err=True)
    if page is not None:
        click.echo(f"page: {click.format_filename(page)}", err=True)
    if failures > 1:
        click.echo(f"{failures} crops not read", err=True)
    return failures
