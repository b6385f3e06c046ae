"""Define the verb ``caption``."""

import dataclasses
import functools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from show_attend_tell.cli import cluster as on_cluster
from show_attend_tell.cli.options import (
    PATH,
    figure_options,
    request_options,
)

_OUT = (
    "Write captions to FILE: a .jsonl, or a .csv or .html generated at the end from a "
    ".jsonl beside it; with --cluster a folder. An interrupted run is resumed."
)


@click.command()
@click.argument("photos", nargs=-1, required=True, type=PATH, metavar="PHOTO...")
@request_options
@click.option("--out", type=PATH, metavar="FILE", help=_OUT)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON Lines with all details."
)
@click.option(
    "--exiftool-columns",
    is_flag=True,
    help="Give a .csv of --out the columns that `exiftool -csv=FILE` reads.",
)
@click.option(
    "--write-metadata",
    is_flag=True,
    help="Write each caption into the metadata of its photo, as description "
    "and alternative text. A description by a person is kept.",
)
@click.option(
    "--overwrite-metadata",
    is_flag=True,
    help="Let --write-metadata replace descriptions by a person.",
)
@on_cluster.caption_options
@figure_options
def caption(
    photos,
    request,
    out,
    as_json,
    exiftool_columns,
    write_metadata,
    overwrite_metadata,
    cluster,
    workers,
    shard_format,
    price_per_hour,
    attention,
    formats,
    theme,
    page,
) -> None:
    """Generate captions of photos, or of all photos in folders."""
    if overwrite_metadata and not write_metadata:
        raise click.UsageError("--overwrite-metadata needs --write-metadata.")
    on_cluster.require_cluster(cluster, workers)
    if cluster is not None:
        on_cluster.caption_photos(
            cluster,
            request,
            photos,
            out,
            (as_json, attention, page, write_metadata, exiftool_columns),
            workers=workers,
            form=shard_format,
            price_per_hour=price_per_hour,
        )
        return
    if exiftool_columns and (out is None or out.suffix.lower() != ".csv"):
        raise click.UsageError("--exiftool-columns needs --out FILE.csv.")
    if out is not None and (as_json or attention is not None or page is not None):
        raise click.UsageError(
            "--out cannot be combined with --json, --attention or --html."
        )
    if request.region is not None and (
        out is not None or write_metadata or len(photos) != 1
    ):
        raise click.UsageError(
            "--region needs one photo, and no --out or --write-metadata."
        )
    if out is not None:
        from show_attend_tell.inference.batch import require_known_ending

        require_known_ending(out)
    from show_attend_tell.inference.engine import count_photos
    from show_attend_tell.inference.pipeline import load_requested

    pipeline = load_requested(request, count_photos(photos))
    pipeline.decoding(request)  # refuses wrong settings before photos are searched
    writer = None
    if write_metadata:
        writer = _open_writer(pipeline, request, overwrite_metadata)
    if out is not None:
        failed = _caption_into(out, pipeline, photos, request, exiftool_columns, writer)
    else:
        # Captions of an earlier run have neither details nor a confidence.
        details = (attention, page, request.min_confidence)
        if writer and not as_json and all(option is None for option in details):
            photos = _print_present(writer, photos)
        results = _results(pipeline, photos, request, writer, page)
        drawn = ((result, []) for result in results)
        if attention is not None:
            drawn = _draw(pipeline, results, attention, formats, theme == "dark")
        failed = _print_results(drawn, as_json, page)
    unwritten = writer is not None and _report_metadata(writer)
    if failed or unwritten:
        sys.exit(1)


def _caption_into(out, pipeline, photos, request, exiftool_columns, writer) -> bool:
    """Write captions into a file; return whether a photo failed."""
    from show_attend_tell.inference.batch import caption_into_file
    from show_attend_tell.inference.result import LowConfidence

    report = caption_into_file(
        pipeline,
        photos,
        out,
        request,
        exiftool_columns=exiftool_columns,
        metadata=writer,
    )
    for failure in report.failures:
        click.echo(click.format_filename(failure.reason), err=True)
    click.echo(report.summary())
    return any(not isinstance(result, LowConfidence) for result in report.failures)


def _results(pipeline, photos, request, writer, page):
    """Yield the results of photos; write their metadata and one page on the way."""
    from show_attend_tell.inference.photos import to_input

    if request.region is None:
        results = pipeline.caption_photos(photos, request)
    else:
        results = pipeline.caption_inputs([to_input(photos[0])], request)
    if writer is not None:
        results = _with_metadata(writer, results)
    if page is None:
        return results
    from show_attend_tell.inference.visualization.pages import write_attention_page

    return write_attention_page(results, page)


def _draw(pipeline, results, folder, formats, dark):
    """Yield each result and the files of its figures."""
    from show_attend_tell.inference.visualization.attention_figure import (
        caption_figure,
        draw_figures,
    )
    from show_attend_tell.inference.visualization.heads_figure import heads_figure

    heads = functools.partial(heads_figure, pipeline.engine)
    draw = {"": caption_figure, "-heads": heads}
    return draw_figures(results, folder, draw, formats, dark)


def _print_results(drawn, as_json, page) -> bool:
    """Print results and the files of their figures; return whether a photo failed."""
    from show_attend_tell.inference.result import Failure, LowConfidence

    failures, left_out = 0, 0
    for result, figures in drawn:
        failure = isinstance(result, Failure)
        left_out += isinstance(result, LowConfidence)
        failures += failure and not isinstance(result, LowConfidence)
        if as_json:
            click.echo(json.dumps(result.to_dict()))
        elif not failure:
            doubt = " (low confidence)" if result.is_doubtful else ""
            name = click.format_filename(result.path)
            click.echo(f"{name}: {result.sentence}{doubt}")
        if failure:
            click.echo(click.format_filename(result.reason), err=True)
        for figure in figures:
            click.echo(f"figure: {click.format_filename(figure)}", err=True)
    if left_out:
        click.echo(f"{left_out} captions left out for low confidence", err=True)
    if page is not None:
        click.echo(f"page: {click.format_filename(page)}", err=True)
    if failures > 1:
        click.echo(f"{failures} photos not captioned", err=True)
    return failures > 0


def _open_writer(pipeline, request, overwrite: bool):
    """Return the MetadataWriter of a pipeline's captions."""
    from show_attend_tell.inference.batch import made_by
    from show_attend_tell.inference.metadata import MetadataWriter

    kept = dataclasses.replace(request, min_confidence=None)  # not in the metadata
    return MetadataWriter(made_by(pipeline, kept), overwrite)


def _print_present(writer, photos: Iterable[Path]) -> list:
    """Print the captions that photos have already; return the other photos.

    Args:
        writer: the MetadataWriter.
        photos: photos and folders.

    Returns:
        Photos without a caption by the same model and settings, and failures.
    """
    from show_attend_tell.inference.photos import find_photos
    from show_attend_tell.inference.result import Failure

    others = []
    for photo in find_photos(photos):
        caption = "" if isinstance(photo, Failure) else writer.find_caption(photo)
        if caption:
            writer.present += 1
            click.echo(f"{click.format_filename(photo)}: {caption}")
        else:
            others.append(photo)
    return others


def _with_metadata(writer, results: Iterable) -> Iterator:
    """Write the metadata of captions as they are generated, and yield them."""
    from show_attend_tell.inference.result import Failure

    for result in results:
        if not isinstance(result, Failure):
            writer.write(result.path, result.text)
        yield result


def _report_metadata(writer) -> bool:
    """Print failures and counts on standard error; return whether any failed."""
    for failure in writer.failures:
        click.echo(click.format_filename(failure.reason), err=True)
    click.echo(writer.summary(), err=True)
    return bool(writer.failures)
