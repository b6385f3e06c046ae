"""A run folder: the resolved settings, checkpoints, model, captions and scores."""

import json
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from show_attend_tell.config import settings as config
from show_attend_tell.runtime.errors import RunError

SETTINGS, MODEL, SCORES = "experiment.toml", "model.keras", "scores.json"
CHECKPOINT = "checkpoint.npz"


def write_text(path: Path, text: str) -> None:
    """Write a text file, all or nothing."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def write_json(path: Path, value: object) -> None:
    """Write a JSON file, all or nothing."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def open_run(
    experiment: config.Experiment, runs: str | Path, resume: bool, overwrite: bool
) -> Path:
    """Return the folder of a run: new, replaced, or as it was left with `resume`.

    Raises:
        RunError: there is nothing to resume, the settings have changed since, or a
            run lies there that would be overwritten.
    """
    folder = Path(runs) / experiment.name
    settings = folder / SETTINGS
    if resume:
        if not (folder / CHECKPOINT).exists():
            raise RunError(f"{folder}: no checkpoint to resume; train without --resume")
        changed = _changed(config.load(settings), experiment)
        if changed:
            raise RunError(
                f"{folder}: the run was started with other settings ({changed}); "
                "restore them, or train without --resume"
            )
        return folder
    if settings.exists() and overwrite:
        shutil.rmtree(folder)
    if settings.exists():
        raise RunError(
            f"{folder}: a run lies there; continue it with --resume, replace it with "
            "--overwrite, or name another folder with --runs"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(settings, config.dump(experiment))
    return folder


def _changed(old: config.Experiment, new: config.Experiment) -> str:
    before, after = config.to_dict(old), config.to_dict(new)
    names = []
    for table, values in after.items():
        if not isinstance(values, dict):
            continue
        names += [
            f"{table}.{key} was {before[table].get(key)!r}"
            for key, value in values.items()
            if before[table].get(key) != value
        ]
    return ", ".join(names)


def model_of(name: str, runs: str | Path) -> Path:
    """Return the model file meant by a file, a run's folder or an experiment's name."""
    if name.endswith(".keras"):
        return Path(name)
    beside = Path(name) / MODEL
    return beside if beside.is_file() else Path(runs) / name / MODEL


def provenance() -> dict:
    """Return git revision, versions and machine size, for the record."""
    packages = ("tensorflow", "keras", "numpy", "h5py", "pillow", "pycocoevalcap")
    return {
        "revision": revision(),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in packages},
        },
        "cores": os.cpu_count(),
    }


def revision() -> str | None:
    """Return the git commit of the source, ``+`` for changes, None outside git."""
    folder = Path(__file__).resolve().parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, text=True
            )
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    tracked = git("ls-files", "--error-unmatch", Path(__file__).name)
    if commit is None or tracked is None:
        return None
    changes = git("status", "--porcelain", "--untracked-files=no", "--", "..")
    return commit + ("+" if changes else "")
