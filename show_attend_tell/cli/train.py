"""Define the verbs that write models: train, average, calibrate, fit-reranker."""

import functools
import sys
import time
from pathlib import Path
from typing import cast

import click

from show_attend_tell.cli.captioning import CAPTIONING, tasks
from show_attend_tell.cli.options import (
    CONTINUES,
    PATH,
    START_OVER,
    Verb,
    cluster_options,
    encoder_weights_option,
    experiment_options,
    in_one_line,
    limit_option,
    load_settings,
    name_option,
    require_cluster,
    require_jax,
    require_tensorflow,
    runs_option,
    work_option,
)
from show_attend_tell.runtime.keras_startup import backend_title, start_keras

_MOST_UNLIKE = 200  # pictures of each kind unlike the training photos
_DRAWN = "drawn scenes"
# The sets that `calibrate` makes itself, by the names in its report.
_OWN_SETS = ("upside down", "close-ups", _DRAWN)


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


@click.command(
    cls=Verb,
    interrupted="continue with --resume, or without it if there is no checkpoint yet",
)
@experiment_options
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
    help="Initial model: a .safetensors file, the experiment of another run, "
    "`shipped` or `shipped-lstm`. It keeps its words, and new words of the data are "
    "added.",
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
    """Train a captioner on prepared features, or the model of another experiment."""
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite exclude each other.")
    if seed is not None and seeds is not None:
        raise click.UsageError("--seed and --seeds exclude each other.")
    require_cluster(cluster, workers)
    several = seeds is not None
    joint = cluster is not None and not several
    if not joint:
        require_tensorflow(cluster)
    chosen = {"seed": seed, "init_from": init_from}
    settings = load_settings(experiment, changes, name, limit, chosen)
    has_captions = settings.task == CAPTIONING.name
    if joint and not has_captions:
        raise click.UsageError(
            "--cluster without --seeds needs an experiment with captions. Received: "
            f"{settings.name}, whose task is {settings.task!r}."
        )
    if joint:
        require_jax()
    from show_attend_tell.runtime.progress import has_terminal

    if has_terminal():  # before the progress bar of the terminal
        begins = f"starting {backend_title()}, reading the data, compiling a step"
        click.echo(f"{settings.name}: {begins}: 10 to 60 s", err=True)
    if joint:  # without Keras, as JAX would take the memory of the workers' GPU
        from show_attend_tell.cluster.training import train_on_cluster

        train = functools.partial(train_on_cluster, cluster=cluster, count=workers)
    else:
        start_keras()
        task = tasks()[settings.task]
        train = task.train
    # A run for each seed.
    if several:
        from show_attend_tell.cluster.seeds import Series, open_runs
        from show_attend_tell.config.experiments import seed_variants
        from show_attend_tell.config.settings import Experiment

        series = Series(
            work, runs, train, task.verify, has_captions, progress=cluster is None
        )
        # Of other tasks the series reads only what all experiments have.
        variants = cast(list[Experiment], seed_variants(settings, seeds))
        open_runs(series, variants, resume, overwrite)
        _train_several(series, variants, cluster, workers)
        return
    # One run.
    from show_attend_tell.config.runs import CHECKPOINT

    started = time.time()  # file systems round to a second
    try:
        done = train(settings, work, runs, resume, overwrite)
    except KeyboardInterrupt as error:
        file = Path(runs) / settings.name / CHECKPOINT
        written = file.is_file() and (resume or file.stat().st_mtime > started - 1)
        error.add_note(_how_to_continue(written, resume, overwrite))
        raise
    _print_training(done)


def _how_to_continue(written: bool, resume: bool, overwrite: bool) -> str:
    """Return how the user continues an interrupted training.

    Args:
        written: whether it has written a checkpoint.
        resume: whether it was resumed.
        overwrite: whether it replaces an earlier run.
    """
    if not written:
        return f"there is no checkpoint yet; {START_OVER}"
    if resume:
        return CONTINUES
    return f"continue with --resume{' in place of --overwrite' if overwrite else ''}"


def _train_several(series, variants, cluster: str | None, workers: int | None) -> None:
    """Train a run for each seed, print the runs and compare them.

    Exit with 1 if a run fails.

    Args:
        series: what the runs share.
        variants: the settings of the runs.
        cluster: address of a Ray cluster, or None.
        workers: number of its workers, or None.
    """
    from show_attend_tell.cluster import seeds

    if cluster is None:
        outcomes = (seeds.train_variant(series, variant) for variant in variants)
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
    done = [one for one in variants if one.name not in failed]
    if series.evaluates and done:
        from show_attend_tell.evaluation.comparison import (
            compare_runs,
            format_comparison,
        )

        files = [seeds.scores_file(series, experiment) for experiment in done]
        table = compare_runs(files, series.work, series.runs)
        click.echo(format_comparison(table))
    if failed:
        click.echo(f"{len(failed)} of {len(variants)} runs have failed", err=True)
        sys.exit(1)


def _print_training(done) -> None:
    """Print the result of a training."""
    click.echo(
        f"{done.steps} steps in {done.seconds:.0f} s, {done.stopped}; best "
        f"{done.metric} {done.best:.2f} at step {done.best_step}"
    )
    click.echo(f"model: {done.model}")


@click.command(cls=Verb)
@click.argument("models", nargs=-1, required=True, type=PATH, metavar="MODEL...")
@experiment_options
@runs_option
@name_option
@click.option("--overwrite", is_flag=True, help="Replace an earlier run.")
def average(models, experiment, changes, runs, name, overwrite) -> None:
    """Average the weights of models into a new run.

    The models must have been trained from the same initial weights.
    """
    settings = load_settings(experiment, changes, name)
    start_keras()
    from show_attend_tell.training.initial_model import average_models

    out = average_models(models, settings, runs, overwrite)
    click.echo(f"{out}: the mean of {len(models)} models")


@click.command(cls=Verb)
@experiment_options
@work_option
@runs_option
@click.option(
    "--model", type=PATH, help="A .safetensors file; by default the experiment's run."
)
@encoder_weights_option
@click.option(
    *("--other", "others"),
    type=PATH,
    multiple=True,
    metavar="FOLDER",
    help="Folder of pictures unlike the training photos; repeatable.",
)
@click.option(
    "--labels",
    type=PATH,
    metavar="FILE",
    help="JSON Lines of captions of validation photos that you judged, with `photo`, "
    "`caption` and `labels`: right, slip or wrong. Half of them fit the confidence, "
    "in place of the captions by people, and half measure it.",
)
@click.option(
    "--keep-familiarity",
    is_flag=True,
    help="Keep what a calibrated model knows of unlike photos, and calibrate tags and "
    "right captions again; needs the features of validation photos alone.",
)
def calibrate(
    experiment,
    changes,
    work,
    runs,
    model,
    encoder_weights,
    others,
    labels,
    keep_familiarity,
) -> None:
    """Calibrate the confidence of a model's captions and tags: when to trust them.

    Compares the validation photos with pictures unlike the training photos: the same
    photos upside down, close-ups of them, drawn scenes, and those of --other. The
    calibration becomes a part of the model's file.
    """
    if keep_familiarity and others:
        raise click.UsageError("--keep-familiarity needs no --other.")
    for folder in others:
        if str(folder) in _OWN_SETS:
            raise click.UsageError(
                f"--other must not be {str(folder)!r}, the name of a set that "
                "calibrate makes itself; rename the folder."
            )
    settings = load_settings(experiment, changes)
    # Read before Keras starts, so that a fault of the file is named immediately.
    from show_attend_tell.training.labels import read_labels

    judged = None if labels is None else read_labels(labels)
    start_keras()
    from show_attend_tell.models.pretrained import model_path
    from show_attend_tell.training.calibration import calibrate, recalibrate

    file = model_path(str(model or settings.name), runs)
    if keep_familiarity:
        found = recalibrate(settings, work, file, encoder_weights, judged)
        click.echo("\n".join(found.lines()))
        return
    ood_sets = {str(folder): _pictures(folder) for folder in others}
    if settings.data.source != "scenes":
        from data_prep.scenes.scenes import make_scene

        numbers = range(_MOST_UNLIKE)
        ood_sets[_DRAWN] = (make_scene("test", n)[0] for n in numbers)
    report = calibrate(settings, work, file, ood_sets, encoder_weights, labels=judged)
    click.echo("\n".join(report.lines()))


def _pictures(folder: Path):
    """Yield the pictures of a folder; skip unreadable files."""
    from show_attend_tell.data.preprocessing import load_photo
    from show_attend_tell.inference.photos import Failure, find_photos
    from show_attend_tell.runtime.errors import PhotoError

    photos = [path for path in find_photos([folder]) if not isinstance(path, Failure)]
    for path in photos[:_MOST_UNLIKE]:
        try:
            yield load_photo(path)
        except PhotoError as error:
            click.echo(in_one_line(str(error)), err=True)


@click.command("fit-reranker", cls=Verb)
@experiment_options
@work_option
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="File to write; by default beside the features: "
    "reranker-<encoder>.safetensors, with the further data sets and their weights in "
    "its name. The reranker becomes a part of the file of a model, and is fitted to "
    "the words of the model.",
)
def fit_reranker(experiment, changes, work, out) -> None:
    """Learn to rank the hypotheses of a beam, for --reranker of eval and caption.

    Predicts from the features of a photo which n-grams its captions have. The
    hypothesis of highest expected CIDEr then moves up. Needs prepare and features.
    """
    settings = load_settings(experiment, changes)
    from show_attend_tell.reference.model_file import CAPTIONER
    from show_attend_tell.reference.reranker import require_writable, save_reranker
    from show_attend_tell.reference.tensor_file import class_of

    if out is not None:
        if out.exists() and not out.is_file():
            raise click.UsageError(f"--out must be a file. Received: {out}")
        require_writable(out)
    start_keras()
    from show_attend_tell.training.reranking import fit_reranker as fit
    from show_attend_tell.training.reranking import reranker_path

    # The default name is a reranker's own: a damaged file there is written again.
    out = out or reranker_path(settings, work)
    reranker = fit(settings, work, out if class_of(out) == CAPTIONER else None)
    save_reranker(reranker, out)
    sizes = f"{len(reranker.landmarks)} photos, {len(reranker.basis)} n-grams"
    click.echo(f"{in_one_line(out)}: {sizes}")
