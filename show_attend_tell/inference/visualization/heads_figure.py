"""Compute and draw the attention of the heads of a Transformer at each word."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from show_attend_tell.data.region import cell_shares
from show_attend_tell.data.vocabulary import START
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.result import Caption
from show_attend_tell.inference.visualization.attention_figure import (
    attention_map,
    overlay,
)
from show_attend_tell.models.generation import make_region_bias

_PANEL, _GAP, _LABEL, _HEAD = 0.95, 0.06, 0.85, 0.3  # inches
_TALLEST = 1.4  # height / width of a panel; taller photos become narrower
_INKS = {False: ("white", "black"), True: ("0.08", "0.95")}


def head_attention(pipeline: CaptioningPipeline, caption: Caption) -> np.ndarray | None:
    """Return the attention of all layers and heads at each word of a caption.

    The photo is encoded again, and the words are read together.

    Args:
        pipeline: the pipeline that generated the caption.
        caption: T words, and the photo as the network sees it.

    Returns:
        (layers, heads, T, rows, columns), each map of sum 1; None for an ensemble, a
        decoder without heads, and a caption without words.
    """
    captioner, T = pipeline.generator.captioner, len(caption.words)
    if captioner is None or not T:
        return None
    ids = captioner.vocabulary.encode(caption.words[:-1])
    inputs = np.array([[START, *ids]], np.int32)  # (1, T)
    features = pipeline.encoder.encode(caption.square[None])  # (1, L, D)
    bias = None
    if caption.region is not None:
        shares = cell_shares(caption.region, captioner.grid)[None]  # (1, L)
        region = make_region_bias(shares, 1, shares.shape[1], captioner.decoding)
        held = np.arange(T)[None, :, None] < region.words  # (1, T, 1)
        bias = np.where(held, region.scores[:, None], 0).astype(np.float32)
    weights = captioner.attention_heads(features, inputs, bias)
    if weights is None:
        return None
    # (1, N, H, T, L) -> (N, H, T, rows, columns)
    return weights[0].reshape(*weights.shape[1:4], *captioner.grid)


def heads_figure_of(
    pipeline: CaptioningPipeline, caption: Caption, dark: bool = False
) -> Figure | None:
    """Draw the attention of the heads, or return None; see :func:`head_attention`."""
    weights = head_attention(pipeline, caption)
    if weights is None:
        return None
    settings = pipeline.captioner.transformer
    layer = settings.alpha_layer or settings.layers
    head = settings.alpha_head
    return heads_figure(caption.view, caption.words, weights, layer, head, dark)


def heads_figure(
    photo: Image.Image | np.ndarray,
    words: Sequence[str],
    weights: np.ndarray,
    layer: int,
    head: int = 0,
    dark: bool = False,
) -> Figure:
    """Draw a column for each word; a row for each head, then for each layer.

    The first rows are the heads of one layer, the others the mean over the heads of
    each layer. Every map is scaled by its own largest value.

    Args:
        photo: RGB, exactly the part that the network sees; of any size.
        words: T words.
        weights: (layers, heads, T, rows, columns) attention weights.
        layer: number, from 1, of the layer whose heads are drawn.
        head: number, from 1, of the head that is alpha; 0 if alpha is their mean.
        dark: whether to draw light text on a dark background.

    Returns:
        A figure that belongs to no window and no global state of matplotlib.

    Raises:
        ValueError: `weights` or `layer` do not fit.
    """
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 5 or weights.shape[2] != len(words) or not len(words):
        raise ValueError(
            f"`weights` must be (layers, heads, {len(words)}, rows, columns) for "
            f"{len(words)} words. Received: shape {weights.shape}"
        )
    layers = len(weights)
    if not 1 <= layer <= layers:
        raise ValueError(f"`layer` must be in [1, {layers}]. Received: {layer}")
    rows = [
        (f"layer {layer}\nhead {j + 1}" + " (α)" * (j + 1 == head), maps)
        for j, maps in enumerate(weights[layer - 1])
    ]
    rows += [
        (f"layer {k + 1}\nmean" + " (α)" * (k + 1 == layer and not head), maps)
        for k, maps in enumerate(weights.mean(axis=1))
    ]
    return maps_figure(photo, words, rows, dark)


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
    ground, ink = _INKS[dark]
    aspect = pixels.shape[0] / pixels.shape[1]
    figure, panels = _grid_of_panels(len(rows), len(words), aspect)
    figure.set_facecolor(ground)
    for (label, maps), row in zip(rows, panels, strict=True):
        _write_left(row[0], label, ink)
        for axes, weights in zip(row, maps, strict=True):
            shown = attention_map(weights)
            shown = overlay(pixels, shown / max(shown.max(), 1e-12))
            axes.imshow(shown, interpolation="antialiased", aspect="auto")
            axes.set_axis_off()
    for axes, word in zip(panels[0], words, strict=True):
        size = 9 * min(1, 10 / max(len(word), 1))  # a long word fits its panel
        axes.set_title(word, color=ink, fontsize=size, weight="bold", pad=4)
        axes.title.set_parse_math(False)
    return figure


def _grid_of_panels(
    rows: int, columns: int, aspect: float
) -> tuple[Figure, list[list[Axes]]]:
    """Make rows of panels of equal size, height / width = `aspect`."""
    high = _PANEL * min(aspect, _TALLEST)
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


def _write_left(axes: Axes, text: str, color: str) -> None:
    """Write text left of a panel."""
    axes.annotate(
        text,
        (0, 0.5),
        (-5, 0),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="center",
        color=color,
        fontsize=7.5,
    )
