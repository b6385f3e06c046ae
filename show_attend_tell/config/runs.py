"""Open a run folder and find the models of runs.

A run folder, ``experiments/runs/<experiment>/``, holds

* ``experiment.toml``, the resolved settings;
* ``checkpoint.safetensors``, the state of training (:mod:`training.checkpoint`), and
  ``model.safetensors``, the best model;
* ``vocabulary.json``, if words were added to an initial model;
* ``events.out.tfevents.*``, ``embedding*.tsv`` and ``projector_config.pbtxt``, for
  TensorBoard (:mod:`training.tensorboard_log`);
* ``captions-<split>.json`` and ``scores.json``, from ``eval``, with a suffix for other
  ways of decoding (:mod:`evaluation.evaluate`).
"""

import dataclasses
import hashlib
import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from show_attend_tell.config.settings import (
    AnyExperiment,
    experiment_to_dict,
    experiment_to_toml,
    read_experiment_file,
)
from show_attend_tell.runtime.errors import TrainingError, quote
from show_attend_tell.runtime.files import atomic_write, locked

SETTINGS = "experiment.toml"
MODEL = "model.safetensors"
CHECKPOINT = "checkpoint.safetensors"
VOCABULARY = "vocabulary.json"
# Of version 0.3; `convert` reads the models.
_OLD_MODELS = ("model.keras", "model.weights.h5")
_OLD_CHECKPOINT = "checkpoint.npz"


def lock_results(folder: Path) -> AbstractContextManager[None]:
    """Return a context in which no other process writes results into a run folder.

    Enter it before a long evaluation, so that a file system without locks is refused
    first.
    """
    taken = TrainingError(
        f"{folder}: another process has been writing here for a minute"
    )
    return locked(folder / ".json.lock", taken, seconds=60)


def write_json(path: Path, value: object) -> None:
    """Write an indented JSON file atomically; a second process waits."""
    with lock_results(path.parent):
        atomic_write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def lock_run(
    experiment: AnyExperiment, runs: str | Path, seconds: float = 0
) -> AbstractContextManager[None]:
    """Return a context in which no other process trains the run.

    The lock file is beside the run folder, which may be replaced.

    Args:
        experiment: the settings; its name is the folder's name.
        runs: the folder of all runs.
        seconds: how long to wait for that process.

    Raises:
        TrainingError: another process is training the run.
    """
    folder = Path(runs) / experiment.name
    taken = TrainingError(
        f"{folder}: another process is training this run; wait, or choose another "
        "folder with --runs"
    )
    return locked(Path(runs) / f".{experiment.name}.lock", taken, seconds)


def open_run(
    experiment: AnyExperiment, runs: str | Path, resume: bool, overwrite: bool
) -> Path:
    """Return the folder of a new run, or with `resume` of an earlier run.

    A run that was killed before its first checkpoint is replaced without `overwrite`.
    A folder without the settings of a run is never removed.

    Args:
        experiment: the settings; its name is the folder's name.
        runs: the folder of all runs.
        resume: whether to continue the earlier run; more epochs extend it.
        overwrite: whether to replace the earlier run.

    Raises:
        TrainingError: there is nothing to resume, the settings have changed since, or
            an earlier run, or a model without settings, would be overwritten.
    """
    require_openable(experiment, runs, resume, overwrite)
    folder = Path(runs) / experiment.name
    if resume:
        return folder
    # The settings are written first, so a folder with them is a run.
    if (folder / SETTINGS).exists():
        # A link to a folder of another disk stays; rmtree would refuse it.
        target = folder.resolve()
        shutil.rmtree(target)
        target.mkdir()
    atomic_write(folder / SETTINGS, experiment_to_toml(experiment))
    return folder


def require_openable(
    experiment: AnyExperiment, runs: str | Path, resume: bool, overwrite: bool
) -> None:
    """Raise a TrainingError unless :func:`open_run` opens a run; change no file.

    The arguments are those of :func:`open_run`.
    """
    folder = Path(runs) / experiment.name
    if holds_run(folder) and not (folder / SETTINGS).exists():
        raise TrainingError(
            f"{folder}: must hold {SETTINGS} beside its model or checkpoint, or "
            "neither. Received: none, so it may be no run, and is not replaced; move "
            "the folder elsewhere, or name another run with --name"
        )
    if resume:
        _require_resumable(folder, experiment)
    elif holds_run(folder) and not overwrite:
        resumable = (folder / CHECKPOINT).exists()
        raise TrainingError(
            f"{folder}: a run is already present; "
            f"{'continue it with --resume' if resumable else 'it cannot be resumed'}, "
            "replace it with --overwrite, or name another run with --name"
        )


def holds_run(folder: Path) -> bool:
    """Return whether a folder has a checkpoint or a model, of version 0.3 too.

    A plug-in's model is any file ``model.*``.
    """
    names = (CHECKPOINT, MODEL, _OLD_CHECKPOINT, *_OLD_MODELS)
    found = any((folder / name).exists() for name in names)
    return found or any(folder.glob("model.*"))


def _require_resumable(folder: Path, experiment: AnyExperiment) -> None:
    """Raise a TrainingError unless a checkpoint can be resumed with these settings."""
    if not (folder / CHECKPOINT).exists():
        if (folder / _OLD_CHECKPOINT).exists():
            raise TrainingError(
                f"{folder / _OLD_CHECKPOINT}: a checkpoint of version 0.3, which only "
                "show-attend-tell 0.3 resumes; train again with --overwrite"
            )
        raise TrainingError(
            f"{folder}: no checkpoint, so there is nothing to resume; train without "
            "--resume" + (" but with --overwrite" if holds_run(folder) else "")
        )
    before = read_experiment_file(folder / SETTINGS)
    changed = _changes(before, _with_epochs_of(experiment, before))
    if changed:
        raise TrainingError(
            f"{folder}: the run was started with other settings ({changed}); restore "
            "them, or replace the run with --overwrite"
        )


def _with_epochs_of(experiment: AnyExperiment, before: AnyExperiment) -> AnyExperiment:
    """Return the settings without an increase of the epochs, which extends a run."""
    if experiment.task != before.task:
        return experiment
    epochs = getattr(before.training, "epochs", None)  # a plug-in may have none
    if epochs is None or experiment.training.epochs <= epochs:
        return experiment
    training = dataclasses.replace(experiment.training, epochs=epochs)
    values: Any = experiment  # a dataclass, which a Protocol cannot say
    replaced: AnyExperiment = dataclasses.replace(values, training=training)
    return replaced


def _changes(old: AnyExperiment, new: AnyExperiment) -> str:
    """Return every changed setting with its old value, empty if there is none."""
    before = experiment_to_dict(old)
    after = experiment_to_dict(new)
    if old.task != new.task:
        return f"task was {quote(old.task)}"
    changes = []
    for table in {**after, **before}:
        ours = before.get(table, {})
        theirs = after.get(table, {})
        if isinstance(ours, dict) and isinstance(theirs, dict):
            keys = [k for k in {**theirs, **ours} if ours.get(k) != theirs.get(k)]
            changes += [f"{table}.{key} was {quote(ours.get(key))}" for key in keys]
    return ", ".join(changes)


def model_digest(file: Path) -> str:
    """Return the first digits of the SHA-256 of a model file, as scores record it."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def find_model(name: str, runs: str | Path) -> Path:
    """Return the model file of a run.

    Args:
        name: a path ending in ``.safetensors``, the folder of a run or of a preset, or
            an experiment's name.
        runs: the folder of all runs, in which a name is searched for.

    Returns:
        The path, of a model of version 0.3 too, which its reader refuses.
    """
    path = Path(name)
    # Also an absent file, which its reader then names.
    if path.suffix in (".safetensors", ".keras") or path.is_file():
        return path
    folders = (path, Path(runs) / name)
    # A model of this version in either folder goes before any of version 0.3.
    for inside in (MODEL, *_OLD_MODELS):
        for folder in folders:
            if (folder / inside).is_file():
                return folder / inside
    return Path(runs) / name / MODEL
