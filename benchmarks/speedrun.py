"""Measure the time from Flickr8k's archives to a captioner of a given quality.

Ours is what a user types: ``prepare``, ``features`` and ``train``, each a process of
its own, from start to end; ``eval`` on the dev list is not part of the time. Beside it
the common PyTorch design is trained on the same features, and its captions are scored a
few times. Its time to the same quality is that of the same ``prepare`` and
``features``, and the time of training at which the line through its scores over the
logarithm of the time reaches it.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks import speedrun_common, turns
from benchmarks.row import Bar, Row
from benchmarks.turns import ContenderError, Stopwatch

QUALITY = {"BLEU-4": 20.0, "CIDEr": 48.0}
BAR = Bar("ours", most=15)
SEEDS = (1, 2)
SPLIT = "val"  # the dev list
_EXPERIMENT = "flickr8k_fast"
_CURVE = (300, 600, 900, 1200)  # seconds of the common design's training


@dataclass(frozen=True)
class Recipe:
    """What is trained, and where.

    Attributes:
        experiment: name of the experiment.
        folder: folder of everything that is written.
        data: folder of the archives; None for data that ``prepare`` makes itself.
        limit: number of photos of each split, in place of all.
    """

    experiment: str
    folder: str
    data: str | None = None
    limit: int | None = None

    @property
    def work(self) -> str:
        """The folder of prepared data."""
        return f"{self.folder}/prepared"

    @property
    def runs(self) -> str:
        """The folder of runs."""
        return f"{self.folder}/runs"


def run(recipe: Recipe, verb: str, *options: str) -> tuple[float, float]:
    """Run a command of the product; return its seconds and the processors it used.

    Raises:
        ContenderError: it failed.
    """
    watch = Stopwatch()
    command = [sys.executable, "-m", "show_attend_tell", verb]
    command += ["--experiment", recipe.experiment, "--work", recipe.work]
    command += ["--limit", str(recipe.limit)] if recipe.limit else []
    command += options
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise ContenderError(f"{verb} ended with code {done.returncode}: {last}")
    return watch.read()


def train(recipe: Recipe, seed: int) -> tuple[float, float, dict[str, float]]:
    """Train with a seed; return seconds, processors and scores in percent."""
    name = f"seed-{seed}"
    place = ("--runs", recipe.runs, "--name", name)
    seconds, cores = run(recipe, "train", *place, "--seed", str(seed))
    run(recipe, "eval", *place, "--split", SPLIT)
    (path,) = Path(recipe.runs).glob(f"{name}*/scores.json")  # a limit adds to the name
    return seconds, cores, json.loads(path.read_text(encoding="utf-8"))


def minutes_to(score: float, curve: list[tuple[float, float]]) -> float | None:
    """Return the minutes at which the line through a curve reaches a score.

    Args:
        score: the score.
        curve: seconds and score, at least two points; the last three are used, whose
            scores grow about as the logarithm of the time.

    Returns:
        Minutes; None if the line does not rise, or reaches the score after a week.
    """
    seconds, scores = np.array(curve[-3:], float).T
    slope, intercept = np.polyfit(np.log(seconds), scores, 1)
    week = np.log(7 * 24 * 3600)
    if slope <= 0 or (score - intercept) / slope > week:
        return None
    return float(np.exp((score - intercept) / slope) / 60)


def _common_minutes(recipe: Recipe, started: float, quick: bool) -> tuple:
    """Return the common design's minutes, or None, and a remark on its curve."""
    if not find_spec("torch"):
        return None, "the common design was not measured, PyTorch is absent"
    found = turns.run_in_process(
        speedrun_common.curve,
        experiment=recipe.experiment,
        limit=recipe.limit,
        work=recipe.work,
        split=SPLIT,
        times=(1, 2) if quick else _CURVE,
    )["curve"]
    curves = {
        name: [(seconds, scores[name]) for seconds, scores in found] for name in QUALITY
    }
    minutes = [minutes_to(QUALITY[name], curve) for name, curve in curves.items()]
    last, scores = found[-1]
    reached = ", ".join(f"{name} {scores[name]:.2f}" for name in QUALITY)
    remark = f"the common design had {reached} after {last / 60:.0f} min of training"
    if None in minutes:
        return None, f"{remark}, and its scores did not rise at the end"
    remark += (
        "; its minutes are extrapolated from its curve, and our prepare and features"
    )
    return max(minutes) + started / 60, remark


def rows(machine: dict, quick: bool, data: str | None = None) -> list[Row]:
    """Measure; return rows of the time and of the scores for each seed.

    Args:
        machine: see :mod:`benchmarks.machine`.
        quick: whether to train on a few drawn scenes, which need no data.
        data: folder of the archives of Flickr8k.

    Raises:
        ContenderError: there is no such folder, or a command failed.
    """
    if not quick and not (data and Path(data).is_dir()):
        raise ContenderError(
            f"--data must be the folder of Flickr8k's archives. Received: {data}"
        )
    with tempfile.TemporaryDirectory() as folder:
        if quick:
            recipe = Recipe("scenes", folder, limit=20)
        else:
            recipe = Recipe(_EXPERIMENT, folder, data)
        place = ("--data", recipe.data) if recipe.data else ()
        stages = [run(recipe, "prepare", *place), run(recipe, "features")]
        trained = [train(recipe, seed) for seed in SEEDS[: 1 if quick else None]]
        before = sum(seconds for seconds, _ in stages)
        minutes, remark = _common_minutes(recipe, before, quick)
    found = []
    for seed, (seconds, cores, scores) in zip(SEEDS, trained, strict=False):
        parts = [*stages, (seconds, cores)]
        total = before + seconds
        common = {"work": "speedrun", "machine": machine}
        what = f"{recipe.experiment}, seed {seed}"
        spent = ", ".join(
            f"{name} {part / 60:.1f}"
            for name, (part, _) in zip(
                ("prepare", "features", "train"), parts, strict=True
            )
        )
        found.append(
            Row(
                what=f"{what}: from the archives to the model",
                unit="min",
                ours=total / 60,
                baseline=minutes,
                ratio=minutes and minutes / (total / 60),
                bar=BAR,
                cores=sum(part * used for part, used in parts) / total,
                note=f"{spent} min; {remark}",
                **common,
            )
        )
        found += [
            Row(
                what=f"{what}: {name} on the dev list",
                unit=name,
                ours=scores[name],
                bar=Bar("ours", least=least),
                **common,
            )
            for name, least in QUALITY.items()
        ]
    return found
