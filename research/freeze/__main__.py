"""The command line of the comparison."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import click

from research.freeze import scores, sentences, transcript
from research.freeze.checkout import Checkout, worktree

ROOT = Path(__file__).resolve().parents[2]
QUICK_PHOTOS = 24
COMPLETE = "complete"  # a file in each finished part of a record
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Flickr8k: the files of its two archives, extracted.",
)
@click.option("--out", type=FOLDER, required=True, help="Folder of the baselines.")
@click.option("--revision", default="9d31cb6", show_default=True)
@click.option(
    "--quick", is_flag=True, help="A few photos, no scores, no slow commands: minutes."
)
@click.option(
    "--only",
    type=click.Choice(["sentences", "scores", "transcript"]),
    multiple=True,
    help="Only this part; repeatable.",
)
@click.option(
    "--results",
    type=FOLDER,
    help="Keep the record of the working tree in this new folder.",
)
@click.option("--baseline-only", is_flag=True, help="Do not record the working tree.")
def main(
    data: Path,
    out: Path,
    revision: str,
    quick: bool,
    only: tuple[str, ...],
    results: Path | None,
    baseline_only: bool,
) -> None:
    """Record the baseline once, record the working tree, and print what differs."""
    data = data.absolute()
    out = out.absolute()
    parts = only or ("sentences", "transcript", *([] if quick else ["scores"]))
    before = out / f"{'quick' if quick else 'full'}-{revision}"
    prepared = out / f"prepared-{revision}"
    for part in parts:
        if not (before / part / COMPLETE).exists():
            checkout = worktree(ROOT, revision, out / f"tree-{revision}")
            record(part, checkout, data, before, prepared, quick)
    if baseline_only:
        return
    after = results or Path(tempfile.mkdtemp(prefix="freeze-"))
    changes = []
    for part in parts:
        record(part, Checkout(ROOT), data, after.absolute(), prepared, quick)
        changes += compare(part, before / part, after / part)
    if results is None:
        shutil.rmtree(after)
    if changes:
        click.echo("\n".join([f"\nCHANGED since {revision}", *changes]))
        sys.exit(1)
    click.echo(f"\nEqual to {revision}: {', '.join(parts)}")


def record(
    part: str, checkout: Checkout, data: Path, folder: Path, prepared: Path, quick: bool
) -> None:
    """Record one part of a checkout in a folder of its name."""
    target = folder / part
    target.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    click.echo(f"{part} of {checkout.path} ...", nl=False)
    if part == "sentences":
        count = QUICK_PHOTOS if quick else None
        sentences.record(checkout, sentences.dev_photos(data, count), target)
    elif part == "scores":
        if not (prepared / COMPLETE).exists():
            scores.prepare(checkout, data, prepared)
            (prepared / COMPLETE).touch()
        scores.record(checkout, prepared, target)
    else:
        transcript.record(checkout, data, target, quick)
    (target / COMPLETE).touch()
    click.echo(f" {time.monotonic() - started:.0f} s")


def compare(part: str, before: Path, after: Path) -> list[str]:
    """Return what must not differ; print the other differences of the transcript."""
    if part == "sentences":
        return sentences.compare(before, after)
    if part == "scores":
        return scores.compare(before, after)
    old = transcript.read(before)
    new = transcript.read(after)
    lines = transcript.differences(old, new)
    if lines:
        title = "\nDifferences of the transcript, for CHANGELOG.md:"
        click.echo("\n".join([title, *lines]))
    return transcript.failures(old, new)


if __name__ == "__main__":
    main()
