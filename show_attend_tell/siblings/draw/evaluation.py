"""Measure the bound of a trained model in nats, and draw what it generates."""

import hashlib
import math
from pathlib import Path

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.siblings import GenerationExperiment
from show_attend_tell.data.digits import held_out_binary
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.siblings.draw.bound import Measurer, Sampler
from show_attend_tell.siblings.draw.figures import (
    encode_png,
    nearest_figure,
    probabilities,
    save_samples,
)
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.evaluation import Report, open_digits
from show_attend_tell.siblings.models import load_model

WEIGHTED, SAMPLES = 1000, 50  # pictures and samples of the importance-weighted bound
GENERATED, COMPARED = 100, 10  # pictures drawn, and pictures compared with digits
_SCALE = 3  # side of a pixel in a figure


def evaluate(
    experiment: GenerationExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
) -> Report:
    """Measure the bound of a run's model; write ``scores.json`` and figures.

    See :mod:`siblings.evaluation` for the arguments.

    Raises:
        DigitsError: the prepared digits are absent, damaged, or not of the split.
        ModelFileError: the model is absent, damaged or of other settings.
    """
    run = Path(runs_folder) / experiment.name
    split, digits = open_digits(experiment, work, split)
    _, training = open_digits(experiment, work, "train")
    model = load_model(run / runs.MODEL, "generate", experiment)
    images = held_out_binary(digits, experiment.data, split)
    scores = {"experiment": experiment.name, "split": split, **measure(model, images)}
    scores["measured"] = (
        f"fixed binarisation; {experiment.data.binarise} in training; one sample of z "
        "for each picture"
    )
    scores["pixels_digest"] = hashlib.sha256(np.ascontiguousarray(images)).hexdigest()
    text = [
        "{experiment}, {split}, {pictures:,} pictures",
        "bound {bound:.2f} nats, standard error {standard_error:.2f}: {measured}",
        "reconstruction {reconstruction:.2f}, divergence {divergence:.2f} nats; "
        "{bits_per_pixel:.4f} bits per pixel",
        "importance-weighted bound {weighted_bound:.2f} nats: {weighted_samples} "
        "samples, first {weighted_pictures:,} pictures",
    ]
    figures = save_figures(run / "figures", model, training.images)
    report = Report(scores, [line.format(**scores) for line in text], figures)
    report.write(run, experiment)
    return report


def measure(model: Draw, images: np.ndarray) -> dict:
    """Return the scores of a model on binary pictures (N, H, W), in nats a picture."""
    measurer, N = Measurer(model), len(images)
    terms, first = measurer.bound(images), images[:WEIGHTED]
    bound = float(terms.whole.mean())
    steps = terms.divergence.mean(axis=0)
    return {
        "pictures": N,
        "bound": bound,  # mean of L, an upper bound of -log p(x); less is better
        "standard_error": float(terms.whole.std() / math.sqrt(N)),  # of the mean
        "reconstruction": float(terms.reconstruction.mean()),  # mean of L^x
        "divergence": float(steps.sum()),  # mean of L^z
        "divergence_of_steps": steps.tolist(),  # its parts
        "bits_per_pixel": bound / (images[0].size * math.log(2)),
        # The importance-weighted bound of the first pictures.
        "weighted_bound": float(measurer.weighted_bound(first, SAMPLES).mean()),
        "weighted_pictures": len(first),
        "weighted_samples": SAMPLES,  # of z for each picture
    }


def save_figures(folder: Path, model: Draw, training: np.ndarray) -> list[Path]:
    """Write samples, their animation, and the training digits nearest to some samples.

    The training digits are (M, 28, 28) uint8; pictures larger than a digit have no
    nearest digits. Returns the paths.
    """
    outputs = Sampler(model)(GENERATED, seed=0)
    paths = [folder / "samples.png", folder / "samples.gif"]
    for path in paths:
        save_samples(path, outputs, model, columns=10, scale=_SCALE)
    drawn = probabilities(outputs["canvas"][:COMPARED, -1], model)
    if drawn.shape[1:] == training.shape[1:]:
        image = nearest_figure(drawn, training, _SCALE)
        paths.append(folder / "nearest.png")
        atomic_write(paths[-1], encode_png(image))
    return paths
