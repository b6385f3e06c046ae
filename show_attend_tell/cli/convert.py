"""Define the verb ``convert``."""

from pathlib import Path

import click

from show_attend_tell.cli.options import Verb, in_one_line, runs_option

_FORMS = "FILE|RUN|PRESET|FOLDER.shards"


@click.command(cls=Verb)
@click.argument("sources", nargs=-1, required=True, metavar=f"{_FORMS}...")
@runs_option
@click.option(
    "--network",
    metavar="NAME",
    help="Network of an encoder's weights, such as ResNet50; VGG16, VGG19 and SceneNet "
    "are known by their layers.",
)
@click.option("--overwrite", is_flag=True, help="Replace models that exist.")
def convert(sources, runs, network, overwrite) -> None:
    """Convert files of version 0.3: models to .safetensors, shards to one file.

    FILE is a model (.keras), a reranker (.npz) or the weights of an encoder
    (.weights.h5). A reranker beside a model becomes a part of the new file; a
    calibration does not, and `calibrate` makes another. FOLDER.shards holds features.
    The old files stay.
    """
    from data_prep.join_shards import is_shards_folder, join_shards
    from show_attend_tell.conversion.convert import convert

    for source in sources:
        if is_shards_folder(Path(source)):
            file = join_shards(Path(source))
            joined, old = (in_one_line(path) for path in (file, source))
            click.echo(f"{joined}: joined from {old}, which you can delete now")
            continue
        done = convert(source, runs, network, overwrite)
        size = done.target.stat().st_size / 1e6
        old, new = (in_one_line(path) for path in (done.source, done.target))
        click.echo(f"{old} -> {new}: {size:.1f} MB")
        for note in done.notes:
            click.echo(in_one_line(note), err=True)
