"""Train several seeds for the verb ``train``, and print their table."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from show_attend_tell.cli.options import is_of_digits


def train_several(
    settings,
    seeds: Sequence[int],
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
    """Train a run for each seed, print the runs and their table.

    Exit with 1 if a run fails.

    Args:
        settings: the experiment.
        seeds: the seeds.
        train_one: the function that trains a run.
        show: prints the result of a training.
        work: folder of prepared data.
        runs: folder of run folders.
        resume: whether to continue earlier runs.
        overwrite: whether to replace earlier runs.
        cluster: address of a Ray cluster, or None.
        workers: number of its workers, or None.
    """
    from show_attend_tell.cluster import seeds as training
    from show_attend_tell.config.experiments import seed_variants

    variants = seed_variants(settings, seeds)
    has_captions = not is_of_digits(settings) and settings.training.objective != "text"
    if cluster is not None:  # workers have another working directory
        work, runs = work.absolute(), runs.absolute()
    progress = cluster is None
    series = training.Series(work, runs, train_one, has_captions, progress)
    jobs = training.plan(series, variants, resume, overwrite)
    if cluster is None:
        outcomes = training.train_in_turn(series, jobs)
    else:
        outcomes = training.train_on_cluster(series, jobs, cluster, workers)
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
    kept = [runs / run.name for run in variants if run.name not in failed]
    if has_captions and kept:
        from show_attend_tell.evaluation.comparison import compare_runs
        from show_attend_tell.evaluation.comparison_table import format_comparison

        click.echo(format_comparison(compare_runs(kept, work, runs)))
    if failed:
        click.echo(f"{len(failed)} of {len(variants)} runs have failed", err=True)
        sys.exit(1)
