"""Draw the path of glimpses over a picture, and what the retina saw at each."""

import io
from pathlib import Path

import numpy as np
from keras import ops
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.runtime.files import atomic_path, atomic_write
from show_attend_tell.siblings.ram.model import RecurrentAttention
from show_attend_tell.siblings.ram.retina import see

_PATH, _BOX = "#ff9e1b", "#35c4e8"  # visible on black and on white
_INCH = 1.1  # side of a panel
_DPI = 100
_FRAME = 700  # milliseconds of a glimpse in an animation


def retina_views(
    images: np.ndarray, locations: np.ndarray, model: RecurrentAttention
) -> np.ndarray:
    """Return what the retina saw, its scales laid over each other.

    A patch of a smaller scale covers the middle of the next larger one, as sharp as it
    was seen.

    Args:
        images: (N, H, H) uint8.
        locations: (N, T, 2).
        model: the model that saw them.

    Returns:
        (N, T, S, S) in [0, 1], where S = 2^(k-1) g pixels.
    """
    s, (N, T, _) = model.settings, locations.shape
    whole = np.repeat(images, T, axis=0).astype(np.float32) / 255
    places = locations.reshape(N * T, 2).astype(np.float32)
    given = map(ops.convert_to_tensor, (whole, places))
    patches = np.asarray(
        ops.convert_to_numpy(see(*given, s.patch, s.scales, model.reach))
    )
    side = s.patch * 2 ** (s.scales - 1)
    views = np.zeros((N * T, side, side), np.float32)
    for scale in reversed(range(s.scales)):
        width = s.patch * 2**scale
        # (N T, g, g) -> (N T, width, width): every cell as 2^i x 2^i pixels
        patch = patches[:, scale].repeat(2**scale, axis=1).repeat(2**scale, axis=2)
        start = (side - width) // 2
        views[:, start : start + width, start : start + width] = patch
    return views.reshape(N, T, side, side)


def retina_boxes(places: np.ndarray, model: RecurrentAttention) -> np.ndarray:
    """Return left, top, right and bottom of the smallest patch of each glimpse; (t, 4).

    Coordinates are pixels from the top left corner of the picture.

    Args:
        places: (t, 2).
        model: the model that looked there.
    """
    width = model.settings.patch
    centres = model.canvas / 2 + places * model.reach
    corners = np.floor(centres - width / 2 + 0.5)  # (t, 2)
    return np.concatenate([corners, corners + width], axis=1)


def glimpse_figure(
    images: np.ndarray,
    locations: np.ndarray,
    model: RecurrentAttention,
    classes: np.ndarray,
    shown: int | None = None,
) -> Figure:
    """Draw a row for each picture: the path of glimpses, then each retina's view.

    The path begins at a filled dot and ends at an open one.

    Args:
        images: (N, H, H) uint8.
        locations: (N, T, 2).
        model: the model that saw them.
        classes: the class that the model chose, (N,).
        shown: how many glimpses are drawn; all by default.
    """
    N, T, _ = locations.shape
    shown = T if shown is None else shown
    views = retina_views(images, locations, model)
    figure = Figure((_INCH * (T + 1), _INCH * N), layout="constrained")
    grid = figure.subplots(N, T + 1, squeeze=False)
    for row, axes in enumerate(grid):
        _draw_path(axes[0], images[row], locations[row, :shown], model)
        axes[0].set_ylabel(f"{classes[row]}" if shown == T else "", rotation=0)
        for t, panel in enumerate(axes[1:]):
            _clear(panel)
            if t < shown:
                panel.imshow(views[row, t], cmap="gray", vmin=0, vmax=1)
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
    axes: Axes, image: np.ndarray, places: np.ndarray, model: RecurrentAttention
) -> None:
    """Draw a picture, the boxes of the smallest patch, and the path between them."""
    _clear(axes)
    H, width = len(image), model.settings.patch
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, extent=(0, H, H, 0))
    centres = H / 2 + places * model.reach  # (t, 2), pixels from the top left corner
    for left, top, *_ in retina_boxes(places, model):
        box = Rectangle(
            (left, top), width, width, fill=False, edgecolor=_BOX, linewidth=0.7
        )
        axes.add_patch(box)
    axes.plot(*centres.T, color=_PATH, linewidth=1.2)
    axes.plot(*centres[0], "o", color=_PATH, markersize=4)
    last = {"markerfacecolor": "none", "markersize": 5, "markeredgewidth": 1.2}
    axes.plot(*centres[-1], "o", color=_PATH, **last)
    axes.set_xlim(0, H)
    axes.set_ylim(H, 0)


def save_glimpses(
    folder: Path,
    images: np.ndarray,
    locations: np.ndarray,
    model: RecurrentAttention,
    classes: np.ndarray,
) -> list[Path]:
    """Write ``glimpses.png`` and the animation ``glimpses.gif``; return their paths.

    The arguments are those of :func:`glimpse_figure`.
    """
    T = locations.shape[1]
    frames = [
        Image.fromarray(
            figure_to_array(
                glimpse_figure(images, locations, model, classes, shown), _DPI
            )
        )
        for shown in range(1, T + 1)
    ]
    still = io.BytesIO()
    frames[-1].save(still, "PNG")
    atomic_write(folder / "glimpses.png", still.getvalue())
    durations = [_FRAME] * (T - 1) + [3 * _FRAME]
    with atomic_path(folder / "glimpses.gif") as temporary:
        frames[0].save(
            temporary,
            save_all=True,
            append_images=frames[1:],
            duration=durations,
            loop=0,
        )
    return [folder / "glimpses.png", folder / "glimpses.gif"]
