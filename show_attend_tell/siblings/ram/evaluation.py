"""Measure the error of a trained classifier of digits, and draw its glimpses."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.siblings import DigitExperiment
from show_attend_tell.data.digits import Digits, held_out_pictures
from show_attend_tell.siblings.classifier import DigitClassifier
from show_attend_tell.siblings.evaluation import open_digits, write_scores
from show_attend_tell.siblings.ram.figures import number_of_glimpses, save_seen
from show_attend_tell.siblings.ram.prediction import Predictor
from show_attend_tell.siblings.ram.task import load_model

SEEDS = range(5)  # of the first places, whose errors are averaged
SAMPLED_RUNS = 10  # whose probabilities are averaged
DRAWN = 6  # pictures in the figure

_MEASURED = {
    "mean": "the policy's mean places; the first places of seeds 0 to 4, mean of five",
    "random": "places uniform over the picture, of seeds 0 to 4, mean of five",
    "whole": "whole pictures",
    "window": "differentiable glimpses by windows of Gaussian filters",
}


@dataclass(frozen=True)
class DigitReport:
    """The errors of a model, in percent."""

    experiment: str
    split: str
    pictures: int  # number of pictures
    error: float  # the main figure
    measured: str  # how it was measured
    error_of_seeds: list[float]  # their mean is the error
    others: dict[str, float]  # errors with other ways to choose places
    figures: list[Path]  # files of the drawn glimpses

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        lines = [
            f"{self.experiment}, {self.split}, {self.pictures:,} pictures",
            f"error {self.error:.2f} %: {self.measured}",
        ]
        lines += [f"{name} {value:.2f} %" for name, value in self.others.items()]
        return lines + [str(path) for path in self.figures]


def evaluate(
    experiment: DigitExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
) -> DigitReport:
    """Measure the error of a run's model; write ``scores.json`` and figures.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder.
        split: see :func:`siblings.evaluation.open_digits`.

    Raises:
        DigitsError: the prepared digits are absent, damaged, or not of the split.
        ModelFileError: the model is absent, damaged or of other settings.
    """
    run = Path(runs_folder) / experiment.name
    split, digits = open_digits(experiment, work, split)
    pictures = held_out_pictures(digits, experiment.data, split)
    model = load_model(run / runs.MODEL, experiment)
    report = measure(experiment, model, pictures, split)
    if number_of_glimpses(model):
        images, predict = pictures.images[:DRAWN], Predictor(model)
        seen = predict(images, predict.usual_look)
        files = save_seen(run / "figures", model, images, seen)
        report = dataclasses.replace(report, figures=files)
    write_scores(run, experiment, report)
    return report


def measure(
    experiment: DigitExperiment, model: DigitClassifier, pictures: Digits, split: str
) -> DigitReport:
    """Return the errors of a model on the pictures of a split."""
    predict, (images, labels) = Predictor(model), pictures
    others, look = {}, predict.usual_look
    seeds = SEEDS if predict.looks else (0,)
    errors = [predict(images, look, seed).errors(labels) for seed in seeds]
    if look == "mean":
        sampled = [predict(images, "sampled", seed) for seed in range(SAMPLED_RUNS)]
        mean = np.mean([run.probabilities for run in sampled], axis=0)
        ensemble = sampled[0]._replace(probabilities=mean)
        at_random = [predict(images, "random", k).errors(labels) for k in SEEDS]
        others = {
            "error_sampled": float(np.mean([run.errors(labels) for run in sampled])),
            # It hides a weak policy: ten runs see more than one run.
            f"error_mean_of_{SAMPLED_RUNS}_sampled": ensemble.errors(labels),
            "error_random_places": float(np.mean(at_random)),
        }
    return DigitReport(
        experiment=experiment.name,
        split=split,
        pictures=len(labels),
        error=float(np.mean(errors)),
        measured=_MEASURED[look or ("window" if experiment.draw else "whole")],
        error_of_seeds=errors,
        others=others,
        figures=[],
    )
