"""Train several seeds and settings by the verb ``train``, and print their table."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click


def _parse_grid(context, parameter, values: Sequence[str]) -> dict[str, list[object]]:
    """Parse the texts of all ``--grid``; without one nothing is imported."""
    if not values:
        return {}
    from show_attend_tell.config.grid import parse_grid

    return parse_grid(values)


grid_option = click.option(
    "--grid",
    multiple=True,
    callback=_parse_grid,
    metavar="TABLE.KEY=VALUE,VALUE",
    help="Train with each value, in a run of its own named after it, and compare the "
    "runs; repeatable, for the product of several settings and of --seeds.",
)


def train_several(
    settings,
    seeds: Sequence[int] | None,
    grid: dict[str, list[object]],
    train_one: Callable,
    show: Callable,
    *,
    work: Path,
    runs: Path,
    resume: bool,
    overwrite: bool,
    cluster: str | None,
    workers: int | None,
) -> None:
    """Train the runs of a sweep, print them and their table; exit with 1 if one fails.

    Args:
        settings: the experiment.
        seeds: seeds of each point of the grid, or None.
        grid: values of settings, from ``grid_option``.
        train_one: the function that trains a run.
        show: prints the result of a training.
        work: folder of prepared data.
        runs: folder of run folders.
        resume: whether to continue earlier runs.
        overwrite: whether to replace earlier runs.
        cluster: address of a Ray cluster, or None.
        workers: number of its workers, or None.
    """
    from show_attend_tell.config.grid import grid_variants
    from show_attend_tell.training.sweeps import runs as sweeps

    variants = grid_variants(settings, grid, seeds)
    has_captions = settings.task == "caption"
    if cluster is not None:  # workers have another working directory
        work, runs = work.absolute(), runs.absolute()
    sweep = sweeps.Sweep(work, runs, train_one, has_captions, progress=cluster is None)
    jobs = sweeps.plan(sweep, variants, resume, overwrite)
    if cluster is None:
        outcomes = sweeps.train_in_turn(sweep, jobs)
    else:
        from show_attend_tell.cluster.seeds import train_on_cluster

        outcomes = train_on_cluster(sweep, jobs, cluster, workers)
    failed = set()
    for outcome in outcomes:
        name = outcome.experiment.name
        if outcome.fault is not None:
            failed.add(name)
            click.echo(f"error: {name}: {outcome.fault}", err=True)
        elif outcome.summary is None:
            click.echo(f"{name}: already finished")
        else:
            click.echo(f"{name}:")
            show(outcome.summary)
    kept = [sweep.folder(one) for one in variants if one.name not in failed]
    if has_captions and kept:
        from show_attend_tell.evaluation.comparison import (
            compare_runs,
            format_comparison,
        )

        click.echo(format_comparison(compare_runs(kept, sweep.work, sweep.runs)))
    if failed:
        click.echo(f"{len(failed)} of {len(variants)} runs have failed", err=True)
        sys.exit(1)
