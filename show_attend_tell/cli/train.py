"""Define the verb ``train``."""

import functools
import os
import sys

import click

from show_attend_tell.cli.cluster import cluster_options, require_cluster
from show_attend_tell.cli.options import (
    ExperimentCommand,
    experiment_option,
    limit_option,
    load_settings,
    name_option,
    runs_option,
    set_option,
    start_tensorflow,
    work_option,
)
from show_attend_tell.cli.tasks import JOINT, TASKS, TF_CONFIG, require_use


def _parse_seeds(context, parameter, value: str | None) -> list[int] | None:
    """Parse ``1,2,3``."""
    if value is None:
        return None
    parts = value.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise click.BadParameter(f"must be seeds such as 1,2,3. Received: {value!r}")
    seeds = list(map(int, parts))
    if len(set(seeds)) < len(seeds):
        raise click.BadParameter(f"must have each seed once. Received: {value!r}")
    return seeds


@click.command(cls=ExperimentCommand)
@experiment_option
@set_option
@work_option
@runs_option
@name_option
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Random seed, in place of training.seed.",
)
@click.option(
    "--seeds",
    callback=_parse_seeds,
    metavar="N,N,...",
    help="Train with each seed, one after the other, in the runs NAME-seed-N, and "
    "compare the runs; --resume skips finished runs.",
)
@cluster_options
@click.option(
    "--init-from",
    metavar="MODEL|NAME",
    help="Initial model: a .keras file, the experiment of another run, `shipped` or "
    "`shipped-lstm`. It keeps its words, and new words of the data are added.",
)
@click.option("--resume", is_flag=True, help="Continue from the run's last checkpoint.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier run.")
@limit_option
def train(
    experiment,
    changes,
    work,
    runs,
    name,
    seed,
    seeds,
    cluster,
    workers,
    init_from,
    resume,
    overwrite,
    limit,
) -> None:
    """Train a captioner on prepared features, or a model of digits or words."""
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite exclude each other.")
    if seed is not None and seeds is not None:
        raise click.UsageError("--seed and --seeds exclude each other.")
    require_cluster(cluster, workers)
    several = seeds is not None
    if several and "TF_CONFIG" in os.environ:
        raise click.UsageError("TF_CONFIG cannot be combined with --seeds.")
    chosen = {"seed": seed, "init_from": init_from}
    settings = load_settings(experiment, changes, name, limit, chosen)
    joint = cluster is not None and not several
    for use, is_given in ((JOINT, joint), (TF_CONFIG, "TF_CONFIG" in os.environ)):
        if is_given:
            require_use(use, settings.task, settings.name)
    start_tensorflow()
    if joint:
        from show_attend_tell.cluster.training import train_on_cluster

        train = functools.partial(train_on_cluster, cluster=cluster, count=workers)
    else:
        together = {}
        if "TF_CONFIG" in os.environ:
            from show_attend_tell.training.workers import join

            together["workers"] = join()  # before TensorFlow computes anything
        train = functools.partial(TASKS[settings.task].functions().train, **together)
    if several:
        from show_attend_tell.cluster.seeds import Series, open_runs
        from show_attend_tell.config.experiments import seed_variants

        if cluster is not None:  # workers have another working directory
            work, runs = work.absolute(), runs.absolute()
        has_captions = TASKS[settings.task].has_captions
        series = Series(work, runs, train, has_captions, progress=cluster is None)
        variants = seed_variants(settings, seeds)
        variants = open_runs(series, variants, resume, overwrite)
        _train_several(series, variants, cluster, workers)
        return
    _print_training(train(settings, work, runs, resume, overwrite))


def _train_several(series, variants, cluster: str | None, workers: int | None) -> None:
    """Train a run for each seed, and print the runs and their table.

    Exit with 1 if a run fails.

    Args:
        series: what the runs share.
        variants: the settings of the runs.
        cluster: address of a Ray cluster, or None.
        workers: number of its workers, or None.
    """
    from show_attend_tell.cluster import seeds

    if cluster is None:
        outcomes = seeds.train_in_turn(series, variants)
    else:
        outcomes = seeds.train_on_cluster(series, variants, cluster, workers)
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
            _print_training(outcome.summary)
    names = [experiment.name for experiment in variants]
    folders = [series.runs / name for name in names if name not in failed]
    if series.evaluates and folders:
        from show_attend_tell.evaluation.comparison import (
            compare_runs,
            format_comparison,
        )

        table = compare_runs(folders, series.work, series.runs)
        click.echo(format_comparison(table))
    if failed:
        click.echo(f"{len(failed)} of {len(names)} runs have failed", err=True)
        sys.exit(1)


def _print_training(done) -> None:
    """Print the result of a training."""
    click.echo(
        f"{done.steps} steps in {done.seconds:.0f} s, {done.stopped}; best "
        f"{done.metric} {done.best:.2f} at step {done.best_step}"
    )
    click.echo(f"model: {done.model}")
