"""Draw the glimpses of a classifier over its pictures, and what it saw at each.

``images`` are N pictures, (N, H, H) uint8, ``seen`` what a model found there, and
``shown`` how many glimpses a figure draws, all by default. Boxes count pixels from the
top left corner of the picture.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from keras import ops
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.siblings.digits.classifier import DigitClassifier
from show_attend_tell.siblings.digits.draw.figures import (
    encode_gif,
    encode_png,
    window_boxes,
)
from show_attend_tell.siblings.digits.draw.filter_bank import make_window, read_patch
from show_attend_tell.siblings.digits.draw.model import WindowClassifier
from show_attend_tell.siblings.digits.ram.model import RecurrentAttention
from show_attend_tell.siblings.digits.ram.prediction import Prediction
from show_attend_tell.siblings.digits.ram.retina import see

# visible on black and on white
_PATH = "#ff9e1b"
_BOX = "#35c4e8"
_STOP = "#ff5c39"  # frame of the view at which the model stopped
_INCH = 1.1  # side of a panel
_DPI = 100
_FRAME = 700  # milliseconds of a glimpse in an animation


class Glimpses(NamedTuple):
    """T glimpses at each of N pictures."""

    centres: np.ndarray  # (N, T, 2)
    boxes: np.ndarray  # (N, T, 4): left, top, right, bottom
    views: np.ndarray  # (N, T, S, S) in [0, 1], what the model saw
    counts: np.ndarray  # (N,), glimpses until the model stopped; the others are ignored


def retina_glimpses(
    images: np.ndarray, seen: Prediction, model: RecurrentAttention
) -> Glimpses:
    """Return the glimpses of RAM; a box is the smallest patch of the retina.

    A view has the scales laid over each other: the patch of a smaller scale covers the
    middle of the next larger patch, as sharp as the model saw it; S = 2^(k-1) g. Zoom
    changes the sides of boxes, not of views, whose cells are then larger or smaller.
    """
    assert seen.locations is not None  # the model looks at places
    s = model.settings
    N, T, _ = seen.locations.shape
    zooms = np.ones((N, T)) if seen.zooms is None else seen.zooms
    counts = np.full(N, T) if seen.glimpses is None else seen.glimpses
    # A row for each glimpse: (N, H, H) -> (N T, H, H).
    whole = np.repeat(images, T, axis=0).astype(np.float32) / 255
    places = seen.locations.reshape(N * T, 2).astype(np.float32)
    factors = zooms.reshape(N * T).astype(np.float32)
    patches = see(
        ops.convert_to_tensor(whole),
        ops.convert_to_tensor(places),
        s.patch,
        s.scales,
        model.reach,
        ops.convert_to_tensor(factors),
    )
    patches = ops.convert_to_numpy(patches)  # (N T, k, g, g)
    side = s.patch * 2 ** (s.scales - 1)
    views = np.zeros((N * T, side, side), np.float32)
    # From the widest patch to the sharpest, which covers the middle.
    for scale in reversed(range(s.scales)):
        width = s.patch * 2**scale
        # (N T, g, g) -> (N T, width, width): every cell as 2^i x 2^i pixels
        patch = patches[:, scale].repeat(2**scale, axis=1).repeat(2**scale, axis=2)
        start = (side - width) // 2
        views[:, start : start + width, start : start + width] = patch
    centres = model.canvas / 2 + seen.locations * model.reach
    sides = s.patch * zooms[..., None]  # (N, T, 1)
    # The first pixel of the retina's patch, see `retina.selection_matrix`.
    corners = np.floor(centres - sides / 2 + 0.5)  # (N, T, 2)
    boxes = np.concatenate([corners, corners + sides], axis=-1)
    return Glimpses(centres, boxes, views.reshape(N, T, side, side), counts)


def window_glimpses(images: np.ndarray, model: WindowClassifier) -> Glimpses:
    """Return the windows of DRAW's reader, and what each window read, without gamma.

    A box goes through the centres of a window's outer filters.
    """
    s = model.settings
    H = model.canvas
    N = len(images)
    pictures = ops.convert_to_tensor(images.astype(np.float32) / 255)
    parameters = model(pictures)["read"]  # (N, T, 5)
    views = []
    boxes = []
    for t in range(s.steps):
        window = make_window(parameters[:, t], s.read, H, H, s)
        # Without gamma the view is in [0, 1], because the rows of F sum to 1.
        plain = window._replace(intensity=ops.ones_like(window.intensity))
        views.append(ops.convert_to_numpy(read_patch(pictures, plain, s.read)))
        windows = window_boxes(parameters[:, t], s.read, H, H, s)
        boxes.append(np.array([box.sides for box in windows]))
    boxes = np.stack(boxes, axis=1)  # T of (N, 4) -> (N, T, 4)
    # (N, T, 4) -> (N, T, 2), the mean of two corners
    centres = boxes.reshape(N, -1, 2, 2).mean(axis=2)
    counts = np.full(N, s.steps)
    return Glimpses(centres, boxes, np.stack(views, axis=1), counts)


def glimpses_of(
    model: DigitClassifier, images: np.ndarray, seen: Prediction
) -> Glimpses:
    """Return the glimpses that led a model to its prediction."""
    if isinstance(model, RecurrentAttention):
        return retina_glimpses(images, seen, model)
    return window_glimpses(images, model)


def named(model: DigitClassifier, classes: np.ndarray) -> list[str]:
    """Return the names of classes, (N,)."""
    return [model.names[k] for k in classes]


def save_glimpses(
    folder: Path, images: np.ndarray, glimpses: Glimpses, classes: Sequence[str]
) -> list[Path]:
    """Write ``glimpses.png`` and the animation ``glimpses.gif``; return their paths."""
    frames = [
        Image.fromarray(
            figure_to_array(draw_glimpses(images, glimpses, classes, shown), _DPI)
        )
        for shown in range(1, glimpses.views.shape[1] + 1)
    ]
    still = folder / "glimpses.png"
    moving = folder / "glimpses.gif"
    atomic_write(still, encode_png(frames[-1]))
    atomic_write(moving, encode_gif(frames, _FRAME, 3 * _FRAME))
    return [still, moving]


def draw_glimpses(
    images: np.ndarray,
    glimpses: Glimpses,
    classes: Sequence[str],
    shown: int | None = None,
) -> Figure:
    """Draw a row for each picture: the path of glimpses, then each glimpse's view.

    The path begins at a filled dot and ends at an open dot. A model that stops before
    the last glimpse leaves the other panels empty; its last view has a frame.
    ``classes`` are the names of the classes that the model chose.
    """
    N, T = glimpses.views.shape[:2]
    shown = T if shown is None else shown
    figure = Figure((_INCH * (T + 1), _INCH * N), layout="constrained")
    grid = figure.subplots(N, T + 1, squeeze=False)
    for row, axes in enumerate(grid):
        count = int(glimpses.counts[row])
        # Frames after the stop repeat the last glimpse.
        now = min(shown, count)
        stopped = shown >= count and count < T
        centres = glimpses.centres[row, :now]
        _draw_path(axes[0], images[row], centres, glimpses.boxes[row, :now])
        # The model chooses a class only after its last glimpse.
        label = classes[row] if shown >= count else ""
        # The name of a user's class may have dollar signs, which are no formula.
        axes[0].set_ylabel(label, rotation=0, parse_math=False)
        for t, panel in enumerate(axes[1:]):
            _clear(panel)
            if t < now:
                panel.imshow(glimpses.views[row, t], cmap="gray", vmin=0, vmax=1)
            if t < shown and row == 0:
                panel.set_title(f"{t + 1}", fontsize=8)
            if stopped and t + 1 == count:
                panel.spines[:].set(visible=True, color=_STOP, linewidth=2)
    return figure


def _clear(axes: Axes) -> None:
    """Remove the ticks and the border of a panel."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _draw_path(
    axes: Axes, image: np.ndarray, centres: np.ndarray, boxes: np.ndarray
) -> None:
    """Draw a picture, the boxes of glimpses, and the path between their centres."""
    _clear(axes)
    H = len(image)
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, extent=(0, H, H, 0))
    for left, top, right, bottom in boxes:
        box = Rectangle(
            (left, top),
            width=right - left,
            height=bottom - top,
            fill=False,
            edgecolor=_BOX,
            linewidth=0.7,
        )
        axes.add_patch(box)
    axes.plot(*centres.T, color=_PATH, linewidth=1.2)
    axes.plot(*centres[0], "o", color=_PATH, markersize=4)
    axes.plot(
        *centres[-1],
        "o",
        color=_PATH,
        markerfacecolor="none",
        markersize=5,
        markeredgewidth=1.2,
    )
    # Boxes outside of the picture must not widen the panel.
    axes.set(xlim=(0, H), ylim=(H, 0))
