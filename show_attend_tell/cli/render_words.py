"""Define the verb ``render-words``."""

import click

from show_attend_tell.cli.options import PATH


@click.command()
@click.option(
    "--out",
    type=PATH,
    required=True,
    metavar="FOLDER",
    help="Folder to write words.npy, words.jsonl and a contact sheet to.",
)
@click.option(
    "--count",
    type=click.IntRange(1, 100_000_000),
    default=10_000,
    show_default=True,
    help="Number of training words.",
)
@click.option(
    "--validation",
    type=click.IntRange(1, 10_000_000),
    default=2000,
    show_default=True,
    help="Number of validation words.",
)
@click.option(
    "--fonts",
    type=PATH,
    metavar="DIR",
    help="Folder of .ttf and .otf files, in place of installed fonts.",
)
@click.option(
    "--photos",
    type=PATH,
    metavar="DIR",
    help="Folder of photos, of which parts become grounds.",
)
@click.option(
    "--words",
    type=PATH,
    metavar="FILE",
    help="Text file of words, one a line, in place of an installed list.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    show_default=True,
    help="Seed of all words.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of processes; by default that of processor cores.",
)
def render_words(out, count, validation, fonts, photos, words, seed, workers) -> None:
    """Render words as they look in photos, to train a reader on.

    An interrupted rendering resumes when it is run again.
    """
    from data_prep.words.prepare import prepare_rendered

    report = prepare_rendered(
        out,
        count,
        validation,
        fonts=fonts,
        words=words,
        photos=photos,
        seed=seed,
        workers=workers,
    )
    click.echo("\n".join(report.lines()))
