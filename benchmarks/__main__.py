"""Measure all benchmarks, print one table and write results.json."""

import importlib
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import click

from benchmarks import machine, table
from benchmarks.turns import ContenderError

RESULTS = Path(__file__).with_name("results.json")
# Work -> module, in the order of the table.
WORKS = {
    "train_step": "train_step",
    "pipeline": "pipeline",
    "extraction": "extraction",
    "beam_search": "beam_search",
    "decoders": "decoders",
    "memory": "memory",
    "compile": "compile_time",
    "cold": "cold_start",
    "loop": "one_by_one",
}
SPEEDRUN = "speedrun"  # of data that it is given
LONGER = {"cluster": "cluster", SPEEDRUN: "speedrun"}  # measured only when named
# Packages that only these works need -> how to install them.
_NEEDED = {
    "train_step": ("torch", "pip install torch"),
    "beam_search": ("torch", "pip install torch"),
    "cluster": ("ray", "pip install '.[jax,cluster]'"),
}


def _measure(
    works: list[str], found: dict, quick: bool, data: str | None
) -> tuple[list, list[str]]:
    """Return the rows of the works, and the works that failed or were skipped."""
    rows = []
    failed = []
    for work in works:
        package, remedy = _NEEDED.get(work, ("numpy", ""))
        if not find_spec(package):
            click.echo(f"{work}: skipped, {package} is absent; {remedy}")
            failed.append(work)
            continue
        start = time.monotonic()
        module = importlib.import_module(f"benchmarks.{(WORKS | LONGER)[work]}")
        options = {"data": data} if work == SPEEDRUN else {}
        try:
            new = module.rows(found, quick, **options)
        except ContenderError as error:
            click.echo(f"{work}: failed: {error}", err=True)
            failed.append(work)
            continue
        rows += new
        seconds = time.monotonic() - start
        click.echo(f"[{seconds:4.0f} s] " + " | ".join(table.cells(new[0])))
        for row in new[1:]:
            click.echo(" " * 9 + " | ".join(table.cells(row)))
    return rows, failed


@click.command(help=__doc__)
@click.argument(
    "works", nargs=-1, type=click.Choice([*WORKS, *LONGER, "growth", "scale", "gpu"])
)
@click.option(
    "--data", metavar="FOLDER", help="Folder of Flickr8k's archives, of speedrun."
)
@click.option(
    "--quick", is_flag=True, help="Tiny sizes, to check that everything runs."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=RESULTS,
    help="The file to write.",
    show_default="benchmarks/results.json",
)
def main(works: tuple[str, ...], data: str | None, quick: bool, output: Path) -> None:
    """Measure the named works, by default all but the longer ones."""
    if "scale" in works:
        from benchmarks import scale

        scale.run(None if quick else scale.FIGURE)
        if set(works) == {"scale"}:
            return
    if "gpu" in works:
        if len(works) > 1:
            raise click.UsageError(
                "gpu must be the only work, as it has a machine of "
                "its own; run the others apart"
            )
        from benchmarks import gpu

        options = ["--small"] if quick else []
        gpu.main([*options, "--output", str(output.with_name("gpu.json"))])
    start = time.monotonic()
    found = machine.measure(quick)
    ticks = machine.processor_ticks()
    click.echo("\n".join(machine.lines(found)))
    if "growth" in works:
        from benchmarks import growth

        growth.run(found, quick, output.with_name("growth.json"))
    chosen = [w for w in (*WORKS, *LONGER) if w in works] if works else list(WORKS)
    if not chosen:
        return
    rows, failed = _measure(chosen, found, quick, data)
    table.write_results(output, [row.to_json() for row in rows])
    click.echo(f"\n{table.table(rows)}\n")
    ticks = ticks, machine.processor_ticks()
    click.echo(machine.changes(found["rates"], machine.rates(quick), ticks))
    click.echo(f"{output}, in {time.monotonic() - start:.0f} s")
    if failed:
        click.echo(f"not measured: {', '.join(failed)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
