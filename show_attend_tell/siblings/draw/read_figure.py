"""Draw the windows that a classifier reads pictures by, and what it read."""

import numpy as np
from keras import ops
from matplotlib.figure import Figure

from show_attend_tell.siblings.draw.classifier import WindowClassifier
from show_attend_tell.siblings.draw.figures import window_boxes
from show_attend_tell.siblings.draw.filter_bank import make_window, read_patch
from show_attend_tell.siblings.glimpse_figure import Glimpses, draw_glimpses


def read_glimpses(images: np.ndarray, model: WindowClassifier) -> Glimpses:
    """Return the windows of each picture, and what each one read without gamma.

    Args:
        images: (n, H, H) uint8.
        model: the model that reads them.
    """
    s, H, n = model.settings, model.canvas, len(images)
    pictures = ops.convert_to_tensor(images.astype(np.float32) / 255)
    parameters = model(pictures)["read"]  # (n, T, 5)
    views, boxes = [], []
    for t in range(s.steps):
        own = parameters[:, t]
        window = make_window(own, s.read, H, H, s)
        plain = window._replace(intensity=ops.ones_like(window.intensity))
        views.append(ops.convert_to_numpy(read_patch(pictures, plain, s.read)))
        found = window_boxes(own, s.read, (H, H), s)
        boxes.append(np.array([box for box, _ in found]))
    boxes = np.stack(boxes, axis=1)  # T of (n, 4) -> (n, T, 4)
    centres = boxes.reshape(n, -1, 2, 2).mean(axis=2)
    return Glimpses(centres, boxes, np.stack(views, axis=1))


def window_figure(
    images: np.ndarray,
    model: WindowClassifier,
    classes: np.ndarray,
    shown: int | None = None,
) -> Figure:
    """Draw a row for each picture: the path of windows, then what each one read.

    A box is through the centres of a window's outer filters.

    Args:
        images: (n, H, H) uint8.
        model: the model that reads them.
        classes: the class that the model chose, (n,).
        shown: how many glimpses are drawn; all by default.
    """
    return draw_glimpses(images, read_glimpses(images, model), classes, shown)
