"""Measure RAM's error beside its mean number of glimpses, for four prices of a glimpse.

    python research/glimpse_prices.py translated
    python research/glimpse_prices.py cluttered

A small RAM of six glimpses is trained first, with a constant learning rate. From its
weights every model of the table continues for the same number of epochs, with a cosine:
fixed ones of 1, 2, 3, 4 and 6 glimpses, those that learn to stop at four prices, and
one that also learns to zoom. So all see the same number of pictures. Finished runs are
kept and interrupted ones continue. The data are those of ``prepare -e ram_translated``.

The error is that of ``eval``: validation digits, the policy's means, first places of
seeds 0 to 4. ``fixed`` is the error of the fixed models at the same mean number of
glimpses, by a line between the two nearest ones: what one reaches that takes either at
random. The result is printed in JSON.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path

import numpy as np

from show_attend_tell.config.experiments import load_experiment, rename
from show_attend_tell.config.runs import MODEL, holds_run
from show_attend_tell.runtime.errors import ShowAttendTellError
from show_attend_tell.siblings.digits.data import held_out_pictures, read_split
from show_attend_tell.siblings.digits.ram.evaluation import SEEDS
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.prediction import Predictor
from show_attend_tell.siblings.digits.ram.training import train
from show_attend_tell.training.checkpoint import is_trained

GLIMPSES = 6  # of the first model, and at most of those that stop
FIXED = (1, 2, 3, 4, 6)
PRICES = (0.003, 0.01, 0.03, 0.1)
ZOOMED = 0.01  # price of the model that also learns to zoom
FIRST_EPOCHS = 12
EPOCHS = 6
# A third of the cost of the experiments' sizes; one glimpse sees 32 of 60 pixels.
SMALL = {
    "glimpse.patch": 8,
    "glimpse.scales": 3,
    "glimpse.width": 128,
    "glimpse.glimpse_width": 64,
    "glimpse.location_width": 64,
}


def models_of(kind: str) -> dict[str, dict]:
    """Return the changed settings of each model of the table, by its label."""
    models = {}
    for price in PRICES:
        stop = {"glimpse.stop": "learned", "glimpse.price": price}
        models[f"price {price:g}"] = stop | {"training.metric": "reward"}
    for number in FIXED:
        models[f"{number} glimpses"] = {"glimpse.glimpses": number}
    zoom = {"glimpse.zoom": "learned"}
    models[f"price {ZOOMED:g}, zoom"] = models[f"price {ZOOMED:g}"] | zoom
    return {f"{kind}, {label}": changes for label, changes in models.items()}


def run(kind: str, name: str, changes: dict, folders: tuple[Path, Path]) -> dict:
    """Train a model unless it is trained; return its scores."""
    work, runs = folders
    settings = [f"{key}={value}" for key, value in (SMALL | changes).items()]
    experiment = rename(load_experiment(f"ram_{kind}", settings), name)
    folder = runs / name
    seconds = None
    begun = holds_run(folder)
    if not begun or not is_trained(folder, experiment):
        seconds = train(experiment, work, runs, begun, progress=False).seconds
    pictures = held_out_pictures(
        read_split(experiment, work, "val"), experiment.data, "val"
    )
    predict = Predictor(CLASSIFIERS.load(folder / MODEL, experiment))
    found = [predict(pictures.images, "mean", seed) for seed in SEEDS]
    sampled = predict(pictures.images, "sampled", 0)
    number = experiment.glimpse.glimpses
    taken = [number if x.glimpses is None else x.glimpses.mean() for x in found]
    scores = {
        "glimpses": float(np.mean(taken)),
        "error": float(np.mean([x.errors(pictures.labels) for x in found])),
        "error_sampled": sampled.errors(pictures.labels),
    }
    return {"seconds": seconds, "scores": scores}


def measure(kind: str, work: Path, runs: Path) -> list[dict]:
    """Return the runs of the row."""
    folders = work, runs
    first = f"glimpses_{kind}"
    constant = {"training.epochs": FIRST_EPOCHS, "training.schedule": "constant"}
    constant["glimpse.glimpses"] = GLIMPSES
    run(kind, first, constant, folders)
    found = []
    for label, changes in models_of(kind).items():
        name = "glimpses_" + label.replace(", ", "_").replace(" ", "_")
        start = {"training.init_from": str(runs / first / MODEL)}
        start["training.epochs"] = EPOCHS
        found.append({"label": label} | run(kind, name, start | changes, folders))
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    fixed = [each["scores"] for each in found if each["label"].endswith("glimpses")]
    numbers = [each["glimpses"] for each in fixed]
    errors = [each["error"] for each in fixed]
    for each in found:
        scores = each["scores"]
        if "price" in each["label"]:
            scores["fixed"] = float(np.interp(scores["glimpses"], numbers, errors))
    return found


def main() -> None:
    """Train and measure; print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("translated", "cluttered"))
    parser.add_argument("--work", type=Path, default=Path("prepared"))
    parser.add_argument("--runs", type=Path, default=Path("experiments/runs"))
    arguments = parser.parse_args()
    # Standard output is the result alone.
    with contextlib.redirect_stdout(sys.stderr):
        found = measure(arguments.kind, arguments.work, arguments.runs)
    print(json.dumps({"runs": found}, indent=1))


if __name__ == "__main__":
    try:
        main()
    except ShowAttendTellError as error:
        sys.exit(f"error: {error}")
