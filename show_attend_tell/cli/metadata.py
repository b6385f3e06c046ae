"""Define the options of ``caption`` that concern the metadata of photos."""

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
            *("--metadata-in", "target"),
            type=click.Choice(["sidecar", "file"]),
            help="Where --write-metadata writes: PHOTO.jpg.xmp beside the photo (the "
            "default), or the photo itself, by exiftool.",
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


def require_consistent(
    write_metadata: bool, target: str | None, overwrite_metadata: bool
) -> None:
    """Raise a usage error for options without effect."""
    if not write_metadata and (target is not None or overwrite_metadata):
        raise click.UsageError(
            "--metadata-in and --overwrite-metadata need --write-metadata."
        )


def open_writer(pipeline, decoding, target: str | None, overwrite: bool):
    """Return the MetadataWriter of a pipeline, which ends with the running verb."""
    from show_attend_tell.inference.batch import made_by
    from show_attend_tell.inference.metadata.writer import MetadataWriter

    author = made_by(pipeline, decoding)
    writer = MetadataWriter(author, target or "sidecar", overwrite)
    return click.get_current_context().with_resource(writer)


def print_present(writer, photos: Iterable[Path]) -> list:
    """Print the captions that photos have already; return the other photos.

    Args:
        writer: the MetadataWriter.
        photos: photos and folders.

    Returns:
        Photos without a caption by the same model and settings, and failures.
    """
    from show_attend_tell.inference.photo_files import find_photos
    from show_attend_tell.inference.result import Failure

    left = []
    for one in find_photos(photos):
        found = "" if isinstance(one, Failure) else writer.find_caption(one)
        if found:
            writer.present += 1
            click.echo(f"{click.format_filename(one)}: {found}")
        else:
            left.append(one)
    return left


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
