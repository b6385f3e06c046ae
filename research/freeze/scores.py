"""Record the scores of the shipped models on the dev list, and compare two records."""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

from research.freeze.checkout import Checkout

EXPERIMENT = ("--experiment", "flickr8k_soft")
# The settings of experiments/README.md and of the model cards.
MODELS = {
    "shipped": ("--beam", "10", "--set", "decoding.length_normalisation=0.75"),
    "shipped-lstm": ("--beam", "5"),
    "flickr8k": ("--beam", "10", "--set", "decoding.length_normalisation=0.8"),
    "flickr8k_lstm": ("--beam", "5"),
}
_FILES = ("Flickr_8k.devImages.txt", "Flickr_8k.trainImages.txt")
_CAPTIONS = "Flickr8k.token.txt"
TRAINING_PHOTOS = 64  # `prepare` needs some; no score depends on them
TOLERANCE = 1e-6


def write_data(data: Path, folder: Path) -> None:
    """Write a data folder with the dev list and a few training photos of Flickr8k."""
    photos = folder / "Flicker8k_Dataset"
    photos.mkdir(parents=True)
    dev, training = ((data / name).read_text().split() for name in _FILES)
    training = training[:TRAINING_PHOTOS]
    (folder / _FILES[0]).write_text("\n".join(dev) + "\n")
    (folder / _FILES[1]).write_text("\n".join(training) + "\n")
    names = {*dev, *training}
    lines = (data / _CAPTIONS).read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.split("#")[0] in names]
    (folder / _CAPTIONS).write_text("".join(kept), encoding="utf-8")
    for name in names:
        (photos / name).symlink_to((data / "Flicker8k_Dataset" / name).absolute())


def prepare(checkout: Checkout, data: Path, work: Path) -> None:
    """Prepare the dev list and extract its features, some four minutes on two cores."""
    small = work.with_name(work.name + "-data")
    if not small.exists():
        write_data(data, small)
    arguments = (*EXPERIMENT, "--work", work.absolute())
    checkout.run(small, "prepare", *arguments, "--data", small.absolute())
    checkout.run(small, "features", *arguments)


def record(checkout: Checkout, prepared: Path, folder: Path) -> None:
    """Write `<model>.json`, the scores of `eval`, for each shipped model.

    The prepared data are copied, so that the checkout may change them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    work = (folder / "prepared").absolute()
    if not work.exists():
        shutil.copytree(prepared, work)
    runs = (folder / "runs").absolute()
    shared = ("eval", *EXPERIMENT, "--split", "val", "--work", work, "--runs", runs)
    for name, options in MODELS.items():
        result = folder / f"{name}.json"
        if result.exists():
            continue
        model = name if name.startswith("shipped") else checkout.model_file(name)
        run = f"freeze-{name}"
        checkout.run(folder, *shared, "--name", run, "--model", model, *options)
        (scores,) = (runs / run).glob("scores*.json")
        shutil.copyfile(scores, result)


def numbers(scores: Mapping[str, object]) -> dict[str, float]:
    """Return the scores of a `scores.json`, without settings, versions and times."""
    unscored = {"seconds", "beam", "rerank_weight"}
    return {
        name: float(value)
        for name, value in scores.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and name not in unscored
    }


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """Return a line for each score that changed or is gone; new ones are no change."""
    return [
        f"{name}: {value} -> {after.get(name)}"
        for name, value in before.items()
        if not math.isclose(value, after.get(name, math.nan), abs_tol=TOLERANCE)
    ]


def compare(before: Path, after: Path) -> list[str]:
    """Return what differs between two folders of :func:`record`."""
    lines = []
    for name in MODELS:
        old, new = (
            numbers(json.loads((folder / f"{name}.json").read_text()))
            for folder in (before, after)
        )
        lines += [f"{name}: {line}" for line in differences(old, new)]
    return lines
