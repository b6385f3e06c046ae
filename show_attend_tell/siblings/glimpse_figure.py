"""Draw pictures with the path of glimpses over them, and what was seen at each."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.runtime.files import atomic_path, atomic_write

_PATH, _BOX = "#ff9e1b", "#35c4e8"  # visible on black and on white
_INCH = 1.1  # side of a panel
_DPI = 100
_FRAME = 700  # milliseconds of a glimpse in an animation


class Glimpses(NamedTuple):
    """T glimpses at each of N pictures; pixels count from the top left corner."""

    centres: np.ndarray  # (N, T, 2)
    boxes: np.ndarray  # (N, T, 4): left, top, right, bottom
    views: np.ndarray  # (N, T, S, S) in [0, 1], what was seen


def draw_glimpses(
    images: np.ndarray,
    glimpses: Glimpses,
    classes: Sequence[int],
    shown: int | None = None,
) -> Figure:
    """Draw a row for each picture: the path of glimpses, then what was seen at each.

    The path begins at a filled dot and ends at an open one.

    Args:
        images: (N, H, H) uint8.
        glimpses: the glimpses at them.
        classes: the class that the model chose, (N,).
        shown: how many glimpses are drawn; all by default.
    """
    N, T = glimpses.views.shape[:2]
    shown = T if shown is None else shown
    figure = Figure((_INCH * (T + 1), _INCH * N), layout="constrained")
    grid = figure.subplots(N, T + 1, squeeze=False)
    for row, axes in enumerate(grid):
        centres, boxes, views = (field[row, :shown] for field in glimpses)
        _draw_path(axes[0], images[row], centres, boxes)
        axes[0].set_ylabel(f"{classes[row]}" if shown == T else "", rotation=0)
        for t, panel in enumerate(axes[1:]):
            _clear(panel)
            if t < shown:
                panel.imshow(views[t], cmap="gray", vmin=0, vmax=1)
                if row == 0:
                    panel.set_title(f"{t + 1}", fontsize=8)
    return figure


def _clear(axes: Axes) -> None:
    """Remove the ticks and the border of a panel."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_path(
    axes: Axes, image: np.ndarray, centres: np.ndarray, boxes: np.ndarray
) -> None:
    """Draw a picture, the boxes of glimpses, and the path between their centres."""
    _clear(axes)
    H = len(image)
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, extent=(0, H, H, 0))
    for left, top, right, bottom in boxes:
        corner, size = (left, top), (right - left, bottom - top)
        box = Rectangle(corner, *size, fill=False, edgecolor=_BOX, linewidth=0.7)
        axes.add_patch(box)
    axes.plot(*centres.T, color=_PATH, linewidth=1.2)
    axes.plot(*centres[0], "o", color=_PATH, markersize=4)
    last = {"markerfacecolor": "none", "markersize": 5, "markeredgewidth": 1.2}
    axes.plot(*centres[-1], "o", color=_PATH, **last)
    axes.set_xlim(0, H)
    axes.set_ylim(H, 0)


def save_glimpses(
    folder: Path, count: int, figure_of: Callable[[int], Figure]
) -> list[Path]:
    """Write ``glimpses.png`` and the animation ``glimpses.gif``; return their paths.

    Args:
        folder: folder of the files.
        count: number of glimpses.
        figure_of: returns the figure of the first glimpses, given how many.
    """
    frames = [
        Image.fromarray(figure_to_array(figure_of(shown), _DPI))
        for shown in range(1, count + 1)
    ]
    still = io.BytesIO()
    frames[-1].save(still, "PNG")
    atomic_write(folder / "glimpses.png", still.getvalue())
    durations = [_FRAME] * (count - 1) + [3 * _FRAME]
    with atomic_path(folder / "glimpses.gif") as temporary:
        frames[0].save(
            temporary,
            save_all=True,
            append_images=frames[1:],
            duration=durations,
            loop=0,
        )
    return [folder / "glimpses.png", folder / "glimpses.gif"]
