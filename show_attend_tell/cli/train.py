"""Define the verb ``train``."""

import click

from show_attend_tell.cli.cluster import (
    captioner_training,
    cluster_options,
    require_cluster,
    require_joint_training,
)
from show_attend_tell.cli.experiment_help import ExperimentCommand
from show_attend_tell.cli.options import (
    experiment_option,
    is_of_digits,
    limit_option,
    load_settings,
    name_option,
    require_captions,
    runs_option,
    set_option,
    start_tensorflow,
    work_option,
)
from show_attend_tell.cli.seeds import train_several


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
    "compare them; with --resume, finished ones are skipped.",
)
@cluster_options
@click.option(
    "--init-from",
    metavar="MODEL|NAME",
    help="Initial model: a .keras file, the experiment of another run, `shipped` or "
    "`shipped-lstm`. Its words are kept, and those that are new in the data are added.",
)
@click.option(
    *("--text", "texts"),
    metavar="FILE",
    multiple=True,
    help="Train on captions without photos, one a line; repeatable. --init-from can "
    "start a training with photos from this run, <experiment>-text (or <experiment>, "
    "if its objective is text).",
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
    texts,
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
    if init_from is not None:
        training = load_settings(experiment, changes, name, limit).training
        if not hasattr(training, "init_from"):
            raise click.UsageError(
                "--init-from needs an experiment of captions or words."
            )
    own = {"seed": seed, "init_from": init_from}
    own = [f"training.{key}={v}" for key, v in own.items() if v is not None]
    settings = load_settings(experiment, (*changes, *own), name, limit)
    if texts:
        require_captions(settings)
    require_joint_training(cluster, several, is_of_digits(settings))
    start_tensorflow()
    if is_of_digits(settings):
        if settings.task == "generate":
            from show_attend_tell.siblings.draw.training import train
        elif settings.task == "read":
            from show_attend_tell.siblings.words.training import train
        else:
            from show_attend_tell.siblings.classification.training import train
    else:
        train = captioner_training(None if several else cluster, workers)
        from show_attend_tell.training.text_likelihood import text_experiment

        settings = text_experiment(settings, texts) if texts else settings
    if several:
        places = {"work": work, "runs": runs, "resume": resume, "overwrite": overwrite}
        where = {"cluster": cluster, "workers": workers}
        train_several(settings, seeds, train, _print_training, **places, **where)
        return
    places = (work, runs, resume, overwrite)
    _print_training(train(settings, *places))


def _print_training(done) -> None:
    """Print the result of a training."""
    click.echo(
        f"{done.steps} steps in {done.seconds:.0f} s, {done.stopped}; best "
        f"{done.metric} {done.best:.2f} at step {done.best_step}"
    )
    click.echo(f"model: {done.model}")
