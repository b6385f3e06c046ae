"""Time ``features``, ``train`` and ``eval`` of an experiment, as a user runs them.

Run ``python -m benchmarks.end_to_end --data FOLDER`` on a machine with a GPU. Each verb
is a process of its own, on JAX; ``prepare`` comes first and does not count.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import click

from benchmarks import table

COUNTED = ("features", "train", "eval")


def run_verb(verb: str, arguments: list[str], folder: Path) -> float:
    """Return the seconds that a verb takes in a folder.

    Raises:
        click.ClickException: the verb has failed.
    """
    command = [sys.executable, "-m", "show_attend_tell", verb, *arguments]
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "KERAS_BACKEND": "jax"}
    )
    if done.returncode:
        raise click.ClickException(f"{verb} has ended with {done.returncode}")
    return time.monotonic() - start


@click.command(help=__doc__)
@click.option("--data", metavar="FOLDER", help="Photos and captions of the experiment.")
@click.option(
    "-e", "--experiment", default="flickr8k_soft", show_default=True, metavar="NAME"
)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE")
@click.option("--limit", metavar="N", help="The first N photos of each split.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="A new folder for what the verbs write.",
)
def main(
    data: str | None,
    experiment: str,
    changes: tuple[str, ...],
    limit: str | None,
    folder: Path,
) -> None:
    """Run the verbs one after the other, and print their times."""
    folder.mkdir(parents=True)
    common = ["--experiment", experiment]
    for change in changes:
        common += ["--set", change]
    if limit:
        common += ["--limit", limit]
    source = ["--data", str(Path(data).resolve())] if data else []
    run_verb("prepare", [*common, *source], folder)
    seconds = {verb: run_verb(verb, common, folder) for verb in COUNTED}
    lines = [(verb, table.number(each, "s")) for verb, each in seconds.items()]
    lines.append(("together", table.number(sum(seconds.values()), "s")))
    click.echo(table.markdown(("verb", "time"), lines))


if __name__ == "__main__":
    main()
