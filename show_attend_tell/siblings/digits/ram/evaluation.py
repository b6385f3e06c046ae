"""Measure the error of a trained classifier of digits, and draw its glimpses."""

import functools

import numpy as np

from show_attend_tell.siblings.common.evaluation import Measured, Report, evaluate_run
from show_attend_tell.siblings.digits.data import held_out_pictures, read_split
from show_attend_tell.siblings.digits.ram.figures import (
    glimpses_of,
    save_glimpses,
)
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.prediction import Predictor

SEEDS = range(5)  # of the first places, whose errors are averaged
SAMPLED_RUNS = 10  # whose probabilities are averaged
DRAWN = 6  # pictures in the figure

_MEASURED = {
    "mean": "the policy's mean places; the first places of seeds 0 to 4, mean of five",
    "random": "places uniform over the picture, of seeds 0 to 4, mean of five",
    "whole": "whole pictures",
    "window": "differentiable glimpses by windows of Gaussian filters",
}


def measure(run: Measured) -> Report:
    """Measure the error of a classifier, and draw its glimpses."""
    images, labels = held_out_pictures(run.data, run.experiment.data, run.split)
    model = run.model
    predict = Predictor(model)
    figures = []
    look = predict.usual_look
    seeds = SEEDS if predict.looks else (0,)
    errors = [predict(images, look, seed).errors(labels) for seed in seeds]
    others = _other_errors(predict, images, labels) if look == "mean" else {}
    if model.glimpses:
        shown = images[:DRAWN]
        seen = predict(shown, look)
        glimpses = glimpses_of(model, shown, seen)
        figures = save_glimpses(run.folder / "figures", shown, glimpses, seen.classes)
    error = float(np.mean(errors))
    measured = _MEASURED[look or ("window" if run.experiment.draw else "whole")]
    scores = {
        "pictures": len(labels),
        "error": error,  # in percent, as all errors
        "measured": measured,
        "error_of_seeds": errors,  # whose mean is the error
        "others": others,  # with other ways to choose places
    }
    text = [
        f"{run.experiment.name}, {run.split}, {len(labels):,} pictures",
        f"error {error:.2f} %: {measured}",
        *(f"{name} {value:.2f} %" for name, value in others.items()),
    ]
    return Report(scores, text, figures)


evaluate = functools.partial(evaluate_run, measure, CLASSIFIERS, read_split)


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
