"""Draw the glimpses of a classifier, at places or by windows."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from show_attend_tell.siblings.classification.prediction import Prediction
from show_attend_tell.siblings.classifier import DigitClassifier
from show_attend_tell.siblings.draw.classifier import WindowClassifier
from show_attend_tell.siblings.draw.read_figure import window_figure
from show_attend_tell.siblings.glimpse_figure import save_glimpses
from show_attend_tell.siblings.ram.figures import glimpse_figure
from show_attend_tell.siblings.ram.model import RecurrentAttention


def number_of_glimpses(model: DigitClassifier) -> int:
    """Return the number of glimpses at a picture, 0 if the model sees it whole."""
    if isinstance(model, RecurrentAttention):
        return model.settings.glimpses
    return model.settings.steps if isinstance(model, WindowClassifier) else 0


def draw_seen(
    model: DigitClassifier,
    images: np.ndarray,
    seen: Prediction,
    shown: int | None = None,
) -> Figure:
    """Draw the glimpses of a model that takes some.

    Args:
        model: the model.
        images: (N, H, H) uint8.
        seen: the prediction for them.
        shown: how many glimpses are drawn; all by default.
    """
    chosen = seen.probabilities.argmax(-1)
    if isinstance(model, RecurrentAttention):
        return glimpse_figure(images, seen.locations, model, chosen, shown)
    return window_figure(images, model, chosen, shown)


def save_seen(
    folder: Path, model: DigitClassifier, images: np.ndarray, seen: Prediction
) -> list[Path]:
    """Write a figure and an animation of a model's glimpses; return their paths.

    Args:
        folder: folder of the files.
        model: a model that takes glimpses.
        images: (N, H, H) uint8.
        seen: the prediction for them.
    """
    count = number_of_glimpses(model)
    return save_glimpses(folder, count, lambda n: draw_seen(model, images, seen, n))
