"""Define the verb ``caption``."""

import contextlib
import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from show_attend_tell.cli.options import (
    CONTINUES,
    PATH,
    START_OVER,
    FilesVerb,
    attention_option,
    cluster_options,
    in_one_line,
    page_option,
    print_failures,
    refused_as_usage,
    request_options,
    require_cluster,
    require_photos_kept,
)
from show_attend_tell.runtime.errors import plural

_HEADS = "-heads"  # ends the names of figures of heads


def _remedy(words: Sequence[str]) -> str:
    """Return how to continue: only captions in a file outlive an interruption."""
    # `--out FILE` or `--out=FILE`
    has_file = any(word.startswith("--out") for word in words)
    return CONTINUES if has_file else START_OVER


@click.command(cls=FilesVerb, interrupted=_remedy)
@click.argument("photos", nargs=-1, required=True, type=PATH, metavar="PHOTO...")
@request_options
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="Write captions to FILE: a .jsonl, or a .csv or .html generated at the "
    "end from a .jsonl beside it; with --cluster a folder. An interrupted run is "
    "resumed.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="Remove the rows of photos that were deleted from these folders from --out.",
)
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
    "and alternative text, unless its confidence is below 0.2. A description by "
    "a person is kept.",
)
@click.option(
    "--overwrite-metadata",
    is_flag=True,
    help="Let --write-metadata replace a person's descriptions.",
)
@cluster_options
@attention_option
@click.option(
    "--format",
    "formats",
    type=click.Choice(["png", "pdf", "svg"]),
    multiple=True,
    default=("png",),
    show_default=True,
    help="File format of the figures; repeatable.",
)
@click.option(
    "--heads",
    is_flag=True,
    help="Also draw the attention of each head and layer of a Transformer.",
)
@click.option(
    "--theme",
    type=click.Choice(["light", "dark"]),
    default="light",
    help="Background of the figures.",
)
@page_option
def caption(
    photos,
    request,
    out,
    prune,
    as_json,
    exiftool_columns,
    write_metadata,
    overwrite_metadata,
    cluster,
    workers,
    attention,
    formats,
    heads,
    theme,
    page,
):
    """Generate captions of photos, or of all photos in folders."""
    # First the options that do not go together: nothing has been loaded yet.
    prints_details = as_json or attention is not None or page is not None
    if overwrite_metadata and not write_metadata:
        raise click.UsageError("--overwrite-metadata needs --write-metadata.")
    require_cluster(cluster, workers)
    if prune and (out is None or cluster is not None):
        raise click.UsageError("--prune needs --out, without --cluster.")
    if cluster is not None:
        others = prints_details or write_metadata or exiftool_columns
        if out is None or request.region is not None or others:
            raise click.UsageError(
                "--cluster needs --out FOLDER, and cannot be combined with --json, "
                "--attention, --html, --region, --write-metadata or --exiftool-columns."
            )
        _caption_on_cluster(cluster, workers, request, photos, out)
        return
    if heads and attention is None:
        raise click.UsageError("--heads needs --attention DIR.")
    if exiftool_columns and request.tags:
        raise click.UsageError(
            "--exiftool-columns cannot be combined with --tags, since exiftool would "
            "replace keywords; --write-metadata adds them."
        )
    if exiftool_columns and (out is None or out.suffix.lower() != ".csv"):
        raise click.UsageError("--exiftool-columns needs --out FILE.csv.")
    if out is not None and prints_details:
        raise click.UsageError(
            "--out cannot be combined with --json, --attention or --html."
        )
    if request.region is not None and (
        out is not None or write_metadata or len(photos) != 1 or photos[0].is_dir()
    ):
        raise click.UsageError(
            "--region needs one photo, and no --out or --write-metadata."
        )
    if out is not None:
        # Refused before the model is loaded.
        from show_attend_tell.inference.batch import require_output

        with refused_as_usage():
            require_output(out)
    from show_attend_tell.inference.pipeline import load_requested

    pipeline = load_requested(request)
    pipeline.decoding(request)  # refuses wrong settings before photos are searched
    writer = None
    if write_metadata:
        writer = _metadata_writer(pipeline, request, overwrite_metadata)
    if out is not None:
        from show_attend_tell.inference.batch import caption_into_file

        report = caption_into_file(
            pipeline,
            photos,
            out,
            request,
            exiftool_columns=exiftool_columns,
            metadata=writer,
            prune=prune,
        )
        failed = print_failures(report.failures)
        click.echo(in_one_line(report.summary()))
    else:
        # Captions of an earlier run have no details.
        if writer and not prints_details and request.min_confidence is None:
            photos = _print_present(writer, photos, request.tags)
        inputs = _inputs(photos, request)
        if attention is not None:
            from show_attend_tell.inference.visualization.attention_figure import (
                require_figures,
            )

            # Before the first caption: figures replace neither photos nor other files.
            require_photos_kept(attention, inputs, formats)
            suffixes = ["", _HEADS] if heads else [""]
            require_figures(inputs, attention, suffixes, formats)
        failed = _print_captions(
            pipeline,
            _results(pipeline, inputs, request, writer),
            as_json=as_json,
            attention=attention,
            formats=formats,
            heads=heads,
            dark=theme == "dark",
            page=page,
        )
    if writer is not None:
        # Not `or`: the failures are printed in any case.
        failed |= print_failures(writer.failures)
        click.echo(writer.summary(), err=True)
    if failed:
        sys.exit(1)


def _caption_on_cluster(cluster, workers, request, photos, out) -> None:
    """Caption photos into a folder of shards; exit with 1 if a photo has no caption."""
    from show_attend_tell.cluster.captions import caption_on_cluster

    report, rate = caption_on_cluster(cluster, request, photos, out, workers)
    failed = print_failures(report.failures)
    click.echo(in_one_line(report.summary()))
    if rate:
        click.echo(f"{rate:.2f} photos/s, the start of the workers included")
    if failed:
        sys.exit(1)


def _metadata_writer(pipeline, request, overwrite):
    """Return a MetadataWriter of the captions that a request asks for."""
    from show_attend_tell.inference.batch import made_by
    from show_attend_tell.inference.metadata import MetadataWriter

    # A sidecar holds for any --min-confidence, and so does not name it.
    recorded = dataclasses.replace(request, min_confidence=None)
    return MetadataWriter(
        made_by(pipeline, recorded), overwrite, request.min_confidence_in_metadata
    )


def _inputs(photos, request) -> list:
    """Return the photos to caption, and Failures."""
    from show_attend_tell.inference.photos import find_photos, to_input

    if request.region is None:
        return list(find_photos(photos))
    return [to_input(photos[0])]


def _results(pipeline, inputs, request, writer) -> Iterator:
    """Yield the results of photos; write their metadata on the way."""
    from show_attend_tell.inference.photos import Failure, describe_file

    if writer is None:
        yield from pipeline.caption_inputs(inputs, request)
        return
    descriptions = {}

    def describe(photo) -> bool:
        """Describe a photo before it is read; no photo is done."""
        if not isinstance(photo, Failure):
            # A photo that cannot be described is a Failure when it is read.
            with contextlib.suppress(OSError):
                descriptions[photo] = describe_file(photo)
        return False

    results = pipeline.caption_inputs(inputs, request, describe)
    for result in _with_progress(results, len(inputs)):
        description = descriptions.pop(result.path, None)
        if isinstance(result, Failure):
            writer.write_none(result.path)
        else:
            writer.write(
                result.path,
                result.text,
                result.confidence,
                result.tag_names,
                description,
            )
        yield result


def _with_progress(results: Iterable, total: int) -> Iterator:
    """Yield results under a bar that makes room for the lines printed for them."""
    from show_attend_tell.runtime.progress import has_terminal, progress_bar

    is_terminal = has_terminal()
    with progress_bar(total, "photo", "caption", shown=total > 1) as bar:
        for result in results:
            bar.update()
            if is_terminal:
                bar.clear()
            yield result
            if is_terminal:
                bar.refresh()


def _print_captions(
    pipeline, results, *, as_json, attention, formats, heads, dark, page
) -> bool:
    """Print captions, and write figures and a page; return whether a photo failed."""
    from show_attend_tell.inference.visualization.attention_figure import (
        caption_figure,
        draw_figures,
        heads_figure,
    )

    if page is not None:
        from show_attend_tell.inference.visualization.pages import write_attention_page

        results = write_attention_page(results, page)
    drawn = ((result, []) for result in results)
    if attention is not None:
        draw: dict[str, Callable[..., Any]] = {"": caption_figure}
        if heads:
            draw[_HEADS] = functools.partial(heads_figure, pipeline.engine)
        drawn = draw_figures(results, attention, draw, formats, dark)
    return print_results(
        drawn,
        _describe,
        "photos not captioned",
        page,
        as_json,
    )


def _describe(caption) -> str:
    """Return a caption as it is printed."""
    text = caption.sentence + _in_words(caption.confidence)
    return text if caption.tags is None else text + _as_list(caption.tag_names)


def _as_list(tags: Sequence[str]) -> str:
    """Return tags to print after a sentence."""
    return f" [{', '.join(tags)}]"


def _in_words(confidence: float | None) -> str:
    """Return a confidence to print after its sentence, empty for None."""
    from show_attend_tell.inference.result import confidence_figures, confidence_word

    word = confidence_word(confidence)
    return "" if word is None else f" ({word}, {confidence_figures(confidence)})"


def print_results(
    drawn: Iterable[tuple[Any, list[Path]]],
    describe: Callable[[Any], str],
    failures_noun: str,
    page: Path | None = None,
    as_json: bool = False,
) -> bool:
    """Print results as they are generated; return whether one is a failure.

    Args:
        drawn: results and Failures, each with the files of its figures.
        describe: returns the text of a result.
        failures_noun: what the last line counts if several failed, such as ``photos not
            captioned``.
        page: the page that was written of these results, or None.
        as_json: whether to print JSON.
    """
    from show_attend_tell.inference.photos import Failure
    from show_attend_tell.inference.result import LowConfidence

    failures = 0
    left_out = 0
    for result, figures in drawn:
        if as_json:
            click.echo(json.dumps(result.to_dict()))
        if isinstance(result, Failure):
            print_failures([result])
            if isinstance(result, LowConfidence):
                left_out += 1
            else:
                failures += 1
        elif not as_json:
            click.echo(f"{in_one_line(result.path)}: {describe(result)}")
        for figure in figures:
            click.echo(f"figure: {in_one_line(figure)}", err=True)
    if left_out:
        counted = plural(left_out, "caption")
        click.echo(f"{counted} left out for low confidence", err=True)
    if page is not None:
        click.echo(f"page: {in_one_line(page)}", err=True)
    if failures > 1:
        click.echo(f"{failures} {failures_noun}", err=True)
    return failures > 0


def _print_present(writer, photos: Iterable[Path], has_tags: bool) -> list:
    """Print the captions that are already in the metadata; return the other photos.

    Args:
        writer: the MetadataWriter.
        photos: photos and folders.
        has_tags: whether the tags of the metadata are printed too.

    Returns:
        Photos without a caption by this model with these settings, and failures.
    """
    from show_attend_tell.inference.photos import Failure, find_photos

    others: list[Path | Failure] = []
    for photo in find_photos(photos):
        if isinstance(photo, Failure):
            others.append(photo)
            continue
        packet = writer.find_packet(photo)
        if packet is None:
            others.append(photo)
            continue
        writer.present += 1
        text = packet.caption + _in_words(packet.confidence)
        if has_tags:
            text += _as_list(packet.tags)
        click.echo(f"{in_one_line(photo)}: {text}")
    return others
