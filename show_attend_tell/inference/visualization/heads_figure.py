"""Draw the attention of the heads of a Transformer at each word."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from show_attend_tell.inference.result import Caption
from show_attend_tell.inference.visualization.attention_figure import (
    INKS,
    TALLEST,
    show_map,
    write_beside,
)

_PANEL, _GAP, _LABEL, _HEAD = 0.95, 0.06, 0.85, 0.3  # inches


def heads_figure(engine, caption: Caption, dark: bool = False) -> Figure | None:
    """Draw the heads' attention; see :meth:`Engine.head_attention`.

    Args:
        engine: the engine that generated the caption.
        caption: the caption.
        dark: whether to draw light text on a dark background.
    """
    attention = engine.head_attention(caption)
    if attention is None:
        return None
    return maps_figure(caption.view, caption.words, head_rows(*attention), dark)


def head_rows(
    weights: np.ndarray, layer: int, head: int
) -> list[tuple[str, np.ndarray]]:
    """Return the labelled maps of each head of one layer, then the mean of each layer.

    Args:
        weights: (layers, heads, T, rows, columns) attention weights.
        layer: number, from 1, of the layer whose heads are drawn.
        head: number, from 1, of the head that is alpha; 0 if alpha is their mean.
    """
    rows = [
        (f"layer {layer}\nhead {j + 1}" + " (α)" * (j + 1 == head), maps)
        for j, maps in enumerate(weights[layer - 1])
    ]
    means = (
        (f"layer {k}\nmean" + " (α)" * (k == layer and not head), maps.mean(axis=0))
        for k, maps in enumerate(weights, start=1)
    )
    return [*rows, *means]


def maps_figure(
    photo: Image.Image | np.ndarray,
    words: Sequence[str],
    rows: Sequence[tuple[str, np.ndarray]],
    dark: bool = False,
) -> Figure:
    """Draw labelled rows of maps over the photo, a column for each word.

    Every map is scaled by its own largest value.

    Args:
        photo: RGB, exactly the part that the network sees; of any size.
        words: T words.
        rows: the label of each row and its maps, (T, rows, columns).
        dark: whether to draw light text on a dark background.

    Returns:
        A figure that belongs to no window and no global state of matplotlib.
    """
    pixels = np.asarray(photo, np.uint8)
    ground, ink, _ = INKS[dark]
    aspect = pixels.shape[0] / pixels.shape[1]
    figure, panels = _grid_of_panels(len(rows), len(words), aspect)
    figure.set_facecolor(ground)
    left = {"ha": "right", "va": "center", "fontsize": 7.5}
    for (label, maps), row in zip(rows, panels, strict=True):
        write_beside(row[0], label, (0, 0.5), (-5, 0), **left, color=ink)
        for axes, weights in zip(row, maps, strict=True):
            show_map(axes, pixels, weights)
    for axes, word in zip(panels[0], words, strict=True):
        size = 9 * min(1, 10 / max(len(word), 1))  # a long word fits its panel
        axes.set_title(word, color=ink, fontsize=size, weight="bold", pad=4)
        axes.title.set_parse_math(False)
    return figure


def _grid_of_panels(
    rows: int, columns: int, aspect: float
) -> tuple[Figure, list[list[Axes]]]:
    """Make rows of panels of equal size, height / width = `aspect`."""
    high = _PANEL * min(aspect, TALLEST)
    wide = high / aspect
    width = _LABEL + columns * (wide + _GAP) + _GAP
    height = _HEAD + rows * (high + _GAP) + _GAP
    figure = Figure(figsize=(width, height), dpi=100)
    panels = []
    for row in range(rows):
        bottom = height - _HEAD - (row + 1) * (high + _GAP) + _GAP
        lefts = [_LABEL + column * (wide + _GAP) for column in range(columns)]
        size = wide / width, high / height
        boxes = [(left / width, bottom / height, *size) for left in lefts]
        panels.append([figure.add_axes(box) for box in boxes])
    return figure, panels
