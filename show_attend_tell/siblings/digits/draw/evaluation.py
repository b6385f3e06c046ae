"""Measure the bound of a trained model in nats, and draw what it generates."""

import functools
import hashlib
import math
from pathlib import Path

import numpy as np

from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.siblings.common.evaluation import (
    Measured,
    Report,
    evaluate_run,
)
from show_attend_tell.siblings.digits.data import held_out_binary, read_split
from show_attend_tell.siblings.digits.draw.bound import Measurer, Sampler
from show_attend_tell.siblings.digits.draw.figures import (
    encode_png,
    nearest_figure,
    probabilities,
    save_samples,
)
from show_attend_tell.siblings.digits.draw.model import Draw
from show_attend_tell.siblings.digits.draw.models import GENERATORS
from show_attend_tell.siblings.digits.settings import GenerationExperiment

# pictures and samples of the importance-weighted bound
WEIGHTED = 1000
SAMPLES = 50
# pictures drawn, and pictures compared with digits
GENERATED = 100
COMPARED = 10
_SCALE = 3  # side of a pixel in a figure


def measure(run: Measured[GenerationExperiment]) -> Report:
    """Measure the bound of a model, and draw samples."""
    images = held_out_binary(run.data, run.experiment.data, run.split)
    scores = bounds(run.model, images)
    scores["measured"] = (
        f"fixed binarisation; {run.experiment.data.binarise} in training; one sample "
        "of z for each picture"
    )
    # Bounds are comparable only on the same binary pixels, which the digest identifies.
    pixels = np.ascontiguousarray(images).data
    scores["pixels_digest"] = hashlib.sha256(pixels).hexdigest()
    text = [
        f"{run.experiment.name}, {run.split}, {{pictures:,}} pictures",
        "bound {bound:.2f} nats, standard error {standard_error:.2f}: {measured}",
        "reconstruction {reconstruction:.2f}, divergence {divergence:.2f} nats; "
        "{bits_per_pixel:.4f} bits per pixel",
        "importance-weighted bound {weighted_bound:.2f} nats: {weighted_samples} "
        "samples, first {weighted_pictures:,} pictures",
    ]
    training = read_split(run.experiment, run.work, "train")
    figures = save_figures(run.folder / "figures", run.model, training.images)
    return Report(scores, [line.format(**scores) for line in text], figures)


evaluate = functools.partial(evaluate_run, measure, GENERATORS, read_split)


def bounds(model: Draw, images: np.ndarray) -> dict:
    """Return the scores of a model on binary pictures (N, H, W), in nats a picture."""
    measurer = Measurer(model)
    N = len(images)
    terms = measurer.bound(images)
    first = images[:WEIGHTED]
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
