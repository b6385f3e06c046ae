"""Measure the error of a trained classifier of digits, and draw its glimpses."""

from pathlib import Path

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.siblings import DigitExperiment
from show_attend_tell.data.digits import held_out_pictures
from show_attend_tell.siblings.evaluation import Report, open_digits
from show_attend_tell.siblings.models import load_model
from show_attend_tell.siblings.ram.figures import (
    glimpses_of,
    save_glimpses,
)
from show_attend_tell.siblings.ram.prediction import Predictor

SEEDS = range(5)  # of the first places, whose errors are averaged
SAMPLED_RUNS = 10  # whose probabilities are averaged
DRAWN = 6  # pictures in the figure

_MEASURED = {
    "mean": "the policy's mean places; the first places of seeds 0 to 4, mean of five",
    "random": "places uniform over the picture, of seeds 0 to 4, mean of five",
    "whole": "whole pictures",
    "window": "differentiable glimpses by windows of Gaussian filters",
}


def evaluate(
    experiment: DigitExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
) -> Report:
    """Measure the error of a run's model; write ``scores.json`` and figures.

    See :mod:`siblings.evaluation` for the arguments.

    Raises:
        DigitsError: the prepared digits are absent, damaged, or not of the split.
        ModelFileError: the model is absent, damaged or of other settings.
    """
    run = Path(runs_folder) / experiment.name
    split, digits = open_digits(experiment, work, split)
    images, labels = held_out_pictures(digits, experiment.data, split)
    model = load_model(run / runs.MODEL, "classify", experiment)
    predict, figures = Predictor(model), []
    look = predict.usual_look
    seeds = SEEDS if predict.looks else (0,)
    errors = [predict(images, look, seed).errors(labels) for seed in seeds]
    others = _other_errors(predict, images, labels) if look == "mean" else {}
    if model.glimpses:
        shown = images[:DRAWN]
        seen = predict(shown, look)
        glimpses = glimpses_of(model, shown, seen)
        figures = save_glimpses(run / "figures", shown, glimpses, seen.classes)
    error = float(np.mean(errors))
    measured = _MEASURED[look or ("window" if experiment.draw else "whole")]
    scores = {
        "experiment": experiment.name,
        "split": split,
        "pictures": len(labels),
        "error": error,  # in percent, as all errors
        "measured": measured,
        "error_of_seeds": errors,  # whose mean is the error
        "others": others,  # with other ways to choose places
    }
    text = [
        f"{experiment.name}, {split}, {len(labels):,} pictures",
        f"error {error:.2f} %: {measured}",
        *(f"{name} {value:.2f} %" for name, value in others.items()),
    ]
    report = Report(scores, text, figures)
    report.write(run, experiment)
    return report


def _other_errors(
    predict: Predictor, images: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """Return the errors at places that a policy samples, and at random places."""
    sampled = [predict(images, "sampled", seed) for seed in range(SAMPLED_RUNS)]
    mean = np.mean([run.probabilities for run in sampled], axis=0)
    at_random = [predict(images, "random", k).errors(labels) for k in SEEDS]
    return {
        "error_sampled": float(np.mean([run.errors(labels) for run in sampled])),
        # It hides a weak policy: ten runs see more than one run.
        f"error_mean_of_{SAMPLED_RUNS}_sampled": sampled[0]
        ._replace(probabilities=mean)
        .errors(labels),
        "error_random_places": float(np.mean(at_random)),
    }
