"""Define the options of verbs that work on a Ray cluster."""

import sys
from collections.abc import Callable

import click

from show_attend_tell.cli.options import start_tensorflow

_NOT_COMBINED = (
    "--json, --attention, --html, --region, --write-metadata or --exiftool-columns"
)


def cluster_options(command: Callable) -> Callable:
    """Add the options of the cluster to a verb."""
    command = click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Worker processes of the cluster; by default one per processor.",
    )(command)
    return click.option(
        "--cluster",
        metavar="auto|HOST:PORT",
        help="Run on a Ray cluster: the cluster at this address, or with auto the "
        "cluster on this machine, which is started if necessary.",
    )(command)


def caption_options(command: Callable) -> Callable:
    """Add the options of ``caption`` on a cluster."""
    command = click.option(
        "--price-per-hour",
        type=click.FloatRange(min=0),
        metavar="PRICE",
        help="With --cluster: price of the whole cluster, to print the cost of a "
        "million photos.",
    )(command)
    command = click.option(
        "--shard-format",
        type=click.Choice(["jsonl", "parquet"]),
        default="jsonl",
        show_default=True,
        help="With --cluster: file format of the captions.",
    )(command)
    return cluster_options(command)


def require_cluster(cluster: str | None, workers: int | None) -> None:
    """Raise a usage error if --workers is used without --cluster."""
    if cluster is None and workers is not None:
        raise click.UsageError("--workers needs --cluster.")


def caption_photos(cluster, request, photos, out, others, **options) -> None:
    """Caption photos into a folder of shards; exit with 1 if a photo has no caption.

    Args:
        cluster: address.
        request: the CaptionRequest.
        photos: files, folders and manifests.
        out: the folder.
        others: options that are refused unless they are absent.
        **options: further arguments of ``caption_on_cluster``.
    """
    if out is None or request.region is not None or any(others):
        raise click.UsageError(
            "--cluster needs --out FOLDER, and cannot be combined with "
            f"{_NOT_COMBINED}."
        )
    start_tensorflow()
    from show_attend_tell.cluster.captions import caption_on_cluster
    from show_attend_tell.inference.result import LowConfidence

    report = caption_on_cluster(cluster, request, photos, out, **options)
    for failure in report.failures:
        click.echo(click.format_filename(failure.reason), err=True)
    click.echo("\n".join(report.lines()))
    if any(not isinstance(one, LowConfidence) for one in report.failures):
        sys.exit(1)
