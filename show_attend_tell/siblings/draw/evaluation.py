"""Measure the bound of a trained model in nats, and draw what it generates."""

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.siblings import GenerationExperiment
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.siblings.draw.bound import Measurer, sample
from show_attend_tell.siblings.draw.data import held_out_binary
from show_attend_tell.siblings.draw.figures import (
    encode_png,
    nearest_figure,
    probabilities,
    save_samples,
)
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.draw.task import load_model
from show_attend_tell.siblings.evaluation import open_digits, write_scores

WEIGHTED, SAMPLES = 1000, 50  # pictures and samples of the importance-weighted bound
GENERATED, COMPARED = 100, 10  # pictures drawn, and those compared with digits
_SCALE = 3  # side of a pixel in a figure


@dataclass(frozen=True)
class BoundReport:
    """The bound of a model on the pictures of a split, in nats for each picture."""

    experiment: str
    split: str
    pictures: int  # number of pictures
    bound: float  # mean of L, an upper bound of -log p(x); less is better
    standard_error: float  # of that mean, over the pictures
    reconstruction: float  # mean of L^x
    divergence: float  # mean of L^z
    divergence_of_steps: list[float]  # its parts
    bits_per_pixel: float  # the bound divided by the pixels, in bits
    weighted_bound: float  # importance-weighted bound of the first pictures
    weighted_pictures: int  # number of these
    weighted_samples: int  # samples of z for each of these
    measured: str  # how the bound was measured
    pixels_digest: str  # digest of the binary pictures
    figures: list[Path]  # files of generated pictures

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        return [
            f"{self.experiment}, {self.split}, {self.pictures:,} pictures",
            f"bound {self.bound:.2f} nats, standard error {self.standard_error:.2f}: "
            f"{self.measured}",
            f"reconstruction {self.reconstruction:.2f}, divergence "
            f"{self.divergence:.2f} nats; {self.bits_per_pixel:.4f} bits per pixel",
            f"importance-weighted bound {self.weighted_bound:.2f} nats: "
            f"{self.weighted_samples} samples, first {self.weighted_pictures:,} "
            "pictures",
            *map(str, self.figures),
        ]


def evaluate(
    experiment: GenerationExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
) -> BoundReport:
    """Measure the bound of a run's model; write ``scores.json`` and figures.

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
    _, training = open_digits(experiment, work, "train")
    model = load_model(run / runs.MODEL, experiment)
    images = held_out_binary(digits, experiment.data, split)
    report = measure(experiment, model, images, split)
    figures = save_figures(run / "figures", model, training.images)
    report = dataclasses.replace(report, figures=figures)
    write_scores(run, experiment, report)
    return report


def measure(
    experiment: GenerationExperiment, model: Draw, images: np.ndarray, split: str
) -> BoundReport:
    """Return the bound of a model on the binary pictures of a split, (N, H, W)."""
    measurer, N = Measurer(model), len(images)
    terms, first = measurer.bound(images), images[:WEIGHTED]
    bound = float(terms.whole.mean())
    steps = terms.divergence.mean(axis=0)
    return BoundReport(
        experiment=experiment.name,
        split=split,
        pictures=N,
        bound=bound,
        standard_error=float(terms.whole.std() / math.sqrt(N)),
        reconstruction=float(terms.reconstruction.mean()),
        divergence=float(steps.sum()),
        divergence_of_steps=steps.tolist(),
        bits_per_pixel=bound / (images[0].size * math.log(2)),
        weighted_bound=float(measurer.weighted_bound(first, SAMPLES).mean()),
        weighted_pictures=len(first),
        weighted_samples=SAMPLES,
        measured=f"fixed binarisation; {experiment.data.binarise} in training; one "
        "sample of z for each picture",
        pixels_digest=hashlib.sha256(np.ascontiguousarray(images)).hexdigest(),
        figures=[],
    )


def save_figures(folder: Path, model: Draw, training: np.ndarray) -> list[Path]:
    """Write samples, their animation, and the training digits nearest to some samples.

    The training digits are (M, 28, 28) uint8; pictures larger than a digit have no
    nearest digits. Returns the paths.
    """
    outputs = sample(model, GENERATED, seed=0)
    paths = [folder / "samples.png", folder / "samples.gif"]
    for path in paths:
        save_samples(path, outputs, model, columns=10, scale=_SCALE)
    drawn = probabilities(outputs["canvas"][:COMPARED, -1], model)
    if drawn.shape[1:] == training.shape[1:]:
        image = nearest_figure(drawn, training, COMPARED, _SCALE)
        paths.append(folder / "nearest.png")
        atomic_write(paths[-1], encode_png(image))
    return paths
