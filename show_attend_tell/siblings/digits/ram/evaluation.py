"""Measure the error of a trained classifier of digits, and draw its glimpses."""

import functools
from typing import Any

import numpy as np

from show_attend_tell.config.runs import MODEL
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.siblings.common.evaluation import Measured, Report, evaluate_run
from show_attend_tell.siblings.digits.data import held_out_pictures, read_split
from show_attend_tell.siblings.digits.ram.figures import (
    glimpses_of,
    named,
    save_glimpses,
)
from show_attend_tell.siblings.digits.ram.model import RecurrentAttention
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.prediction import Prediction, Predictor
from show_attend_tell.siblings.digits.settings import DigitExperiment

SEEDS = range(5)  # of the first places, whose errors are averaged
SAMPLED_RUNS = 10  # whose probabilities are averaged
DRAWN = 6  # pictures in the figure

_MEASURED = {
    "mean": "the policy's mean places; the first places of seeds 0 to 4, mean of five",
    "random": "places uniform over the picture, of seeds 0 to 4, mean of five",
    "whole": "whole pictures",
    "window": "differentiable glimpses by windows of Gaussian filters",
}


def measure(run: Measured[DigitExperiment]) -> Report:
    """Measure the error of a classifier, and draw its glimpses.

    The scores of a model that stops also have the mean number of glimpses beside each
    error, the share of pictures with each number, and the reward.

    Raises:
        ModelFileError: the model was trained with other classes.
    """
    model = run.model
    if model.names != run.data.names:
        raise ModelFileError(
            f"{run.folder / MODEL}: was trained with other classes than the "
            f"prepared {run.work / run.experiment.data.name}; prepare its data again, "
            "or train again with --overwrite"
        )
    images, labels = held_out_pictures(run.data, run.experiment.data, run.split)
    predict = Predictor(model)
    figures = []
    look = predict.default_look
    # A model without places does not depend on the seed.
    seeds = SEEDS if predict.looks else (0,)
    found = [predict(images, look, seed) for seed in seeds]
    errors = [seen.errors(labels) for seen in found]
    others = _other_errors(predict, images, labels) if look == "mean" else {}
    if model.glimpses:
        shown = images[:DRAWN]
        seen = predict(shown, look)
        glimpses = glimpses_of(model, shown, seen)
        figures = save_glimpses(
            run.folder / "figures", shown, glimpses, named(model, seen.classes)
        )
    error = float(np.mean(errors))
    measured = _MEASURED[look or ("window" if run.experiment.draw else "whole")]
    scores: dict[str, Any] = {
        "pictures": len(labels),
        "error": error,  # in percent, as all errors
        "measured": measured,
        "error_of_seeds": errors,  # whose mean is the error
        "others": others,  # with other ways to choose places
    }
    number = ""
    if found[0].glimpses is not None:
        scores |= _glimpse_scores(found, error, model)
        number = f" with {scores['glimpses']:.2f} glimpses a picture"
    text = [
        f"{run.experiment.name}, {run.split}, {len(labels):,} pictures",
        f"error {error:.2f} %{number}: {measured}",
        *(_line(name, value) for name, value in others.items()),
    ]
    if number:
        shares = enumerate(scores["glimpse_shares"], start=1)
        listed = ", ".join(f"{count}: {100 * share:.1f} %" for count, share in shares)
        text.append(f"pictures by number of glimpses {listed}")
    return Report(scores, text, figures)


def _line(name: str, value: float) -> str:
    """Return a line of another way to choose places; errors are in percent."""
    unit = " %" if name.startswith("error") else ""
    return f"{name} {value:.2f}{unit}"


def _glimpse_scores(
    found: list[Prediction], error: float, model: RecurrentAttention
) -> dict:
    """Return how many glimpses a model took that stops, and its reward."""
    taken = np.concatenate([seen.glimpses for seen in found])
    # [1:], because no picture has 0 glimpses.
    counts = np.bincount(taken, minlength=model.glimpses + 1)[1:]
    mean = float(taken.mean())
    price = model.settings.price
    return {
        "glimpses": mean,
        "glimpse_shares": (counts / len(taken)).tolist(),  # of 1, 2, .. T glimpses
        "price": price,
        "reward": (1 - error / 100) - price * mean,
    }


evaluate = functools.partial(evaluate_run, measure, CLASSIFIERS, read_split)


def _other_errors(
    predict: Predictor, images: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """Return the errors at places that a policy samples, and at random places.

    Beside them the mean numbers of glimpses, if the model stops.
    """
    sampled = [predict(images, "sampled", seed) for seed in range(SAMPLED_RUNS)]
    mean = np.mean([run.probabilities for run in sampled], axis=0)
    at_random = [predict(images, "random", seed) for seed in SEEDS]
    others = {
        "error_sampled": _mean_error(sampled, labels),
        # It hides a weak policy: ten runs see more than one run.
        f"error_mean_of_{SAMPLED_RUNS}_sampled": sampled[0]
        ._replace(probabilities=mean)
        .errors(labels),
        "error_random_places": _mean_error(at_random, labels),
    }
    for name, runs in {"sampled": sampled, "random_places": at_random}.items():
        numbers = [run.glimpses.mean() for run in runs if run.glimpses is not None]
        if numbers:
            others[f"glimpses_{name}"] = float(np.mean(numbers))
    return others


def _mean_error(runs: list[Prediction], labels: np.ndarray) -> float:
    return float(np.mean([run.errors(labels) for run in runs]))
