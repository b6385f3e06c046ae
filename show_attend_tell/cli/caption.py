"""Define the verb ``caption``."""

import functools
import json
import sys

import click

from show_attend_tell.cli import cluster as on_cluster
from show_attend_tell.cli import metadata
from show_attend_tell.cli.options import (
    PATH,
    encoder_weights_option,
    figure_options,
    mirror_option,
    models_option,
    reranker_option,
    start_tensorflow,
)

_OUT = (
    "Write captions to FILE: a .jsonl, or a .csv or .html generated at the end from a "
    ".jsonl beside it; with --cluster a folder. An interrupted run is resumed."
)


@click.command()
@click.argument("photos", nargs=-1, required=True, type=PATH, metavar="PHOTO...")
@models_option
@mirror_option
@reranker_option
@encoder_weights_option
@click.option(
    "--beam", type=click.IntRange(min=1), help="Beam width; overrides the model's."
)
@click.option(
    "--locations",
    type=click.Choice(["expected", "likeliest", "sampled"]),
    help="Context of each word; overrides the model's: all locations weighted by "
    "attention (soft), the one of highest attention, or one sampled (hard).",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of sampled locations; overrides the model's.",
)
@click.option(
    "--region",
    metavar="X0,Y0,X1,Y1",
    help="Write the caption from this part of the photo, in pixels of the photo as "
    "displayed; with one photo only.",
)
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1),
    metavar="P",
    help="Leave out captions whose confidence is below P, 0 to 1.",
)
@click.option("--out", type=PATH, metavar="FILE", help=_OUT)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON Lines with all details."
)
@click.option(
    "--exiftool-columns",
    is_flag=True,
    help="Give a .csv of --out the columns that `exiftool -csv=FILE` reads.",
)
@metadata.metadata_options
@on_cluster.caption_options
@figure_options
def caption(
    photos,
    models,
    mirror,
    reranker,
    encoder_weights,
    beam,
    locations,
    seed,
    region,
    min_confidence,
    out,
    as_json,
    exiftool_columns,
    write_metadata,
    target,
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
    from show_attend_tell.models.pretrained import DEFAULT

    metadata.require_consistent(write_metadata, target, overwrite_metadata)
    on_cluster.require_cluster(cluster, workers)
    loaded = models or (DEFAULT,), encoder_weights, mirror, reranker
    if cluster is not None:
        on_cluster.caption_photos(
            *(cluster, loaded, photos, out),
            {"beam": beam, "locations": locations, "seed": seed},
            (as_json, attention, page, region, write_metadata, exiftool_columns),
            min_confidence=min_confidence,
            workers=workers,
            form=shard_format,
            price_per_hour=price_per_hour,
        )
        return
    _require_csv(exiftool_columns, out)
    if out is not None and (as_json or attention is not None or page is not None):
        raise click.UsageError(
            "--out cannot be combined with --json, --attention or --html."
        )
    if region is not None and (out is not None or write_metadata or len(photos) != 1):
        raise click.UsageError(
            "--region needs one photo, and no --out or --write-metadata."
        )
    if out is not None:
        written = (target, overwrite_metadata) if write_metadata else None
        _caption_into(
            *(out, photos, loaded, beam, locations, seed, min_confidence),
            *(exiftool_columns, written),
        )
        return
    start_tensorflow()
    from show_attend_tell.data.region import parse_region
    from show_attend_tell.inference.head_attention import heads_figure_of
    from show_attend_tell.inference.result import Failure, LowConfidence
    from show_attend_tell.inference.visualization.figures import (
        draw_figures,
        write_attention_page,
    )

    pipeline = _load(*loaded)
    decoding = pipeline.decoding(beam=beam, locations=locations, seed=seed)
    writer = None
    if write_metadata:
        writer = metadata.open_writer(pipeline, decoding, target, overwrite_metadata)
        # Captions of an earlier run have neither details nor a confidence.
        details = (attention, page, min_confidence)
        if not as_json and all(option is None for option in details):
            photos = metadata.print_present(writer, photos)
    if region is None:
        results = pipeline.caption_photos(photos, decoding, min_confidence)
    else:
        box = parse_region(region)
        results = pipeline.caption_region(photos[0], box, decoding, min_confidence)
    if writer is not None:
        results = metadata.write_results(writer, results)
    if page is not None:
        results = write_attention_page(results, page)
    drawn = ((result, []) for result in results)
    if attention is not None:
        draw_heads = functools.partial(heads_figure_of, pipeline)
        given = attention, formats, theme == "dark"
        drawn = draw_figures(results, *given, draw_heads)
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
    unwritten = writer is not None and metadata.report(writer)
    if failures or unwritten:
        sys.exit(1)


def _require_csv(exiftool_columns, out) -> None:
    if exiftool_columns and (out is None or out.suffix.lower() != ".csv"):
        raise click.UsageError("--exiftool-columns needs --out FILE.csv.")


def _load(models, encoder_weights, mirror, reranker):
    from show_attend_tell.inference.pipeline import load

    model = models[0] if len(models) == 1 else models
    return load(model, encoder_weights, mirror=mirror, reranker=reranker)


def _caption_into(
    out,
    photos,
    loaded,
    beam,
    locations,
    seed,
    min_confidence,
    exiftool_columns,
    written,
) -> None:
    start_tensorflow()
    from show_attend_tell.inference.batch import (
        caption_into_file,
        require_known_ending,
    )
    from show_attend_tell.inference.result import LowConfidence
    from show_attend_tell.inference.table import COLUMNS, EXIFTOOL_COLUMNS

    require_known_ending(out)
    pipeline = _load(*loaded)
    decoding = pipeline.decoding(beam=beam, locations=locations, seed=seed)
    writer = metadata.open_writer(pipeline, decoding, *written) if written else None
    columns = EXIFTOOL_COLUMNS if exiftool_columns else COLUMNS
    report = caption_into_file(
        *(pipeline, photos, out, decoding),
        columns=columns,
        metadata=writer,
        min_confidence=min_confidence,
    )
    for failure in report.failures:
        click.echo(click.format_filename(failure.reason), err=True)
    click.echo(report.summary())
    unwritten = writer is not None and metadata.report(writer)
    failed = any(not isinstance(one, LowConfidence) for one in report.failures)
    if failed or unwritten:
        sys.exit(1)
