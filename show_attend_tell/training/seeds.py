"""Train an experiment with several seeds, one after the other."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import keras

from show_attend_tell.config import runs
from show_attend_tell.config.experiments import seed_variants
from show_attend_tell.config.settings import Experiment
from show_attend_tell.runtime.errors import RunError
from show_attend_tell.training.checkpoint import read_position
from show_attend_tell.training.train import Summary, train


def train_seeds(
    experiment: Experiment,
    seeds: Sequence[int],
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    train_one: Callable[..., Summary] | None = None,
) -> Iterator[tuple[Experiment, Summary | None]]:
    """Train the runs ``<name>-seed-<seed>``; each equals a training of its seed alone.

    Args:
        experiment: the settings.
        seeds: distinct seeds.
        work: folder of prepared data.
        runs_folder: folder of the run folders.
        resume: skip finished runs, continue one with a checkpoint, start the others.
        overwrite: replace earlier runs.
        progress: whether to show a bar for each training.
        train_one: the function that trains a run, by default that of captioners.

    Yields:
        The settings of each run, and the result of its training; None if it was
        already finished.

    Raises:
        RunError: one of the runs already exists, which is found before any training.
        ConfigError: a seed is out of range.
    """
    variants = seed_variants(experiment, seeds)
    folders = [Path(runs_folder) / variant.name for variant in variants]
    present = [folder for folder in folders if runs.holds_run(folder)]
    if present and not resume and not overwrite:
        raise RunError(
            f"{present[0]}: a run is already present; continue with --resume, replace "
            "the runs with --overwrite, or choose another folder with --runs"
        )
    for variant, folder in zip(variants, folders, strict=True):
        continues = resume and runs.holds_run(folder)
        if continues and _is_finished(folder, variant):
            yield variant, None
            continue
        summary = (train_one or train)(
            variant, work, runs_folder, continues, overwrite, progress=progress
        )
        keras.backend.clear_session()  # graphs of this training fill the memory
        yield variant, summary


def _is_finished(folder: Path, experiment: Experiment) -> bool:
    """Return whether a run has done all epochs or has stopped early.

    Raises:
        RunError: there is no checkpoint, it is damaged, or the settings have changed.
    """
    runs.open_run(experiment, folder.parent, resume=True, overwrite=False)
    position = read_position(folder / runs.CHECKPOINT)
    epochs = experiment.training.epochs
    return bool(position.get("stopped")) or position.get("epoch", 0) >= epochs
