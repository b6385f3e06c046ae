"""Define the verbs before training: ``prepare``, ``features`` and ``download``."""

from collections.abc import Sequence
from pathlib import Path

import click

from show_attend_tell.cli.captioning import CAPTIONING
from show_attend_tell.cli.options import (
    CONTINUES,
    PATH,
    Verb,
    cluster_options,
    encoder_weights_option,
    experiment_options,
    limit_option,
    load_settings,
    require_cluster,
    require_tensorflow,
    work_option,
)
from show_attend_tell.runtime.keras_startup import start_keras


@click.command(cls=Verb, interrupted=CONTINUES)
@experiment_options
@work_option
@click.option("--data", type=PATH, help="Folder with the files of the data set.")
@click.option(
    "--download",
    "downloads",
    is_flag=True,
    help="First download the data set, as the verb download, into the folder of --data "
    "or else into downloads/<source> in the folder of --work: flickr8k (1.1 GB) or "
    "coco (20 GB).",
)
@click.option(
    "--on-problem",
    type=click.Choice(["skip", "refuse"]),
    default="skip",
    help="Skip malformed lines and photos, or refuse the data set.",
)
@limit_option
def prepare(experiment, changes, work, data, downloads, on_problem, limit) -> None:
    """Prepare a data set, such as photos with captions.

    An interrupted preparation resumes when it is run again.
    """
    from data_prep.prepare import prepare
    from show_attend_tell.runtime.progress import has_terminal

    settings = load_settings(experiment, changes, limit=limit)
    if downloads:
        data = data or work / "downloads" / settings.data.source
        _download(settings.data.source, data)
    report = prepare(settings, data, work, on_problem, has_terminal(), limit)
    click.echo("\n".join(report.lines()))


def _remedy_of_features(words: Sequence[str]) -> str:
    """Return how to continue: features are appended to, unless they are replaced."""
    if "--overwrite" in words:
        return "run it again without --overwrite to continue"
    return CONTINUES


@click.command(cls=Verb, interrupted=_remedy_of_features)
@experiment_options
@work_option
@encoder_weights_option
@click.option("--overwrite", is_flag=True, help="Replace existing features.")
@click.option(
    *("--mirror-split", "mirror_splits"),
    type=click.Choice(["val", "test"]),
    multiple=True,
    help="Also extract the mirrored photos of this split, for eval --mirror; "
    "repeatable.",
)
@cluster_options
@limit_option
def features(
    experiment,
    changes,
    work,
    encoder_weights,
    overwrite,
    mirror_splits,
    cluster,
    workers,
    limit,
) -> None:
    """Extract annotation vectors of prepared photos.

    An interrupted extraction resumes when it is run again.
    """
    require_cluster(cluster, workers)
    require_tensorflow(cluster)
    settings = load_settings(experiment, changes, limit=limit)
    if settings.task != CAPTIONING.name:
        click.echo(f"{settings.name}: nothing to do, its model reads the pictures")
        return
    start_keras()
    options = {
        "encoder_weights": encoder_weights,
        "overwrite": overwrite,
        "mirror_splits": mirror_splits,
    }
    if cluster is None:
        from data_prep.extract import extract

        sets = extract(settings, work, **options)
    else:
        from show_attend_tell.cluster.features import extract_on_cluster

        sets = extract_on_cluster(settings, work, cluster, workers, **options)
    click.echo("\n".join(line for report in sets for line in report.lines()))


@click.command(cls=Verb, interrupted=CONTINUES)
@click.argument("source", metavar="SOURCE")
@click.option(
    "--data", type=PATH, required=True, help="Folder of the downloaded files."
)
def download(source, data) -> None:
    """Download a data set with public URLs: coco or flickr8k.

    An interrupted download resumes when it is run again.
    """
    _download(source, data)


def _download(source: str, folder: Path) -> None:
    """Download a data set and print the files."""
    from data_prep import download
    from data_prep.disk import format_bytes, free_bytes
    from show_attend_tell.runtime.progress import has_terminal

    files = download.FILES.get(source, ())
    sizes = [remote.size for remote in files if remote.size is not None]
    # Of some data sets only the server knows the sizes.
    if sizes and len(sizes) == len(files):
        free = format_bytes(free_bytes(folder))
        click.echo(f"{format_bytes(sum(sizes))} to download, {free} free in {folder}")
    written = download.download(source, folder, has_terminal())
    click.echo("\n".join(map(str, written)))
