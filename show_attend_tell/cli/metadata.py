"""Define the options of ``caption`` that concern the metadata of photos."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click


def metadata_options(command: Callable) -> Callable:
    """Add the options of metadata to a verb."""
    options = (
        click.option(
            "--write-metadata",
            is_flag=True,
            help="Write each caption into the metadata of its photo, as description "
            "and alternative text. A description by a person is kept.",
        ),
        click.option(
            "--overwrite-metadata",
            is_flag=True,
            help="Let --write-metadata replace descriptions by a person.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def open_writer(pipeline, request, overwrite: bool):
    """Return the MetadataWriter of a pipeline's captions."""
    from show_attend_tell.inference.batch import made_by
    from show_attend_tell.inference.metadata import MetadataWriter

    kept = dataclasses.replace(request, min_confidence=None)  # not in the metadata
    return MetadataWriter(made_by(pipeline, kept), overwrite)


def print_present(writer, photos: Iterable[Path]) -> list:
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


def write_results(writer, results: Iterable) -> Iterator:
    """Write the metadata of captions as they are generated, and yield them."""
    from show_attend_tell.inference.result import Failure

    for result in results:
        if not isinstance(result, Failure):
            writer.write(result.path, result.text)
        yield result


def report(writer) -> bool:
    """Print failures and counts on standard error; return whether any failed."""
    for failure in writer.failures:
        click.echo(click.format_filename(failure.reason), err=True)
    click.echo(writer.summary(), err=True)
    return bool(writer.failures)
