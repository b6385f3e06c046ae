"""Draw the attention of each word over the photo.

As in Figures 2 and 3 of arXiv:1502.03044v3: alpha_t, upsampled by 16 and smoothed with
a Gaussian, over the photo; bright is where alpha_t is large.
"""

import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from show_attend_tell.data.region import smoothing
from show_attend_tell.runtime.files import atomic_write

UPSAMPLING = 16  # 2**4 pixels to a location, Sec. 5.4
VEIL = 0.3  # brightness of a pixel without attention
GLOW = 0.3  # white mixed into the pixel with most, so that it shows on dark photos too
MOST_COLUMNS = 7

_PANEL, _TEXT, _MARGIN = 1.75, 0.5, 0.1  # inches
_TALLEST = 1.4  # height / width of a panel; taller photos become narrower
_ACCENT, _SHADE = "#ffb000", "black"  # outline of a location, visible on any photo
_INKS = {False: ("white", "black", "0.4"), True: ("0.08", "0.95", "0.65")}


def attention_figure(
    photo: Image.Image | np.ndarray,
    words: Sequence[str],
    attention: np.ndarray,
    beta: Sequence[float] | None = None,
    probabilities: Sequence[float] | None = None,
    dark: bool = False,
    locations: Sequence[int] | None = None,
    region: Sequence[float] | None = None,
) -> Figure:
    """Draw the photo, then the photo under the attention of each word.

    Every map is scaled by its own largest value, so that attention spread evenly
    leaves the whole photo bright.

    Args:
        photo: RGB, exactly the part that the network sees, as ``Encoder.preprocess``
            or ``Encoder.view`` returns it; of any size.
        words: T words; append ``<end>`` to draw the end word too.
        attention: (T, rows, columns) weights alpha; further rows are ignored.
        beta: T gates, printed under the words.
        probabilities: T numbers in [0, 1], p of each word.
        dark: whether to draw light text on a dark background.
        locations: T indices in [0, rows * columns), the location that hard attention
            selected for each word, outlined; -1 for none.
        region: (x0, y0, x1, y1) as fractions of the photo, outlined in every panel.

    Returns:
        A figure that belongs to no window and no global state of matplotlib.

    Raises:
        ValueError: `attention`, `beta`, `probabilities` or `locations` do not fit.
    """
    attention = np.asarray(attention, np.float64)
    numbers = {"beta": beta, "probabilities": probabilities, "locations": locations}
    _check(words, attention, numbers)
    pixels = np.asarray(photo, np.uint8)
    ground, ink, faint = _INKS[dark]
    figure, panels = _panels(len(words) + 1, pixels.shape[0] / pixels.shape[1])
    figure.set_facecolor(ground)
    _show(panels[0], pixels)
    for axes in panels if region is not None else ():
        _outline(axes, region, linestyle=(0, (4, 2)))
    for t, (axes, word) in enumerate(zip(panels[1:], words, strict=True)):
        weights = attention_map(attention[t])
        _show(axes, overlay(pixels, weights / max(weights.max(), 1e-12)))
        if locations is not None and locations[t] >= 0:
            _outline(axes, _box_of(int(locations[t]), attention.shape[1:]))
        size = 11 * min(1, 15 / max(len(word), 1))  # a long word fits its panel
        _annotate(axes, word, -4, color=ink, fontsize=size, weight="bold")
        line = _numbers(t, probabilities, beta)
        _annotate(axes, line, -20, color=faint, fontsize=8.5, weight="normal")
    return figure


def _numbers(
    t: int, probabilities: Sequence[float] | None, beta: Sequence[float] | None
) -> str:
    """Return the line of numbers under word ``t``."""
    numbers = {"p": probabilities, "β": beta}
    return "   ".join(
        f"{name} {values[t]:.2f}"
        for name, values in numbers.items()
        if values is not None
    )


def attention_map(weights: np.ndarray) -> np.ndarray:
    """Upsample the attention of one word by 16 and smooth it with a Gaussian.

    Args:
        weights: (rows, columns) attention weights.

    Returns:
        (16 rows, 16 columns) float64 over the part of the photo that the network sees.
    """
    rows, columns = np.shape(weights)
    weights = np.asarray(weights, np.float64)
    # (16 rows, rows) (rows, columns) (columns, 16 columns)
    down, across = smoothing(rows, UPSAMPLING), smoothing(columns, UPSAMPLING)
    return down @ weights @ across.T


def overlay(pixels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Dim a photo where attention is low and lighten it where attention is high.

    Args:
        pixels: (H, W, 3) uint8.
        weights: (rows, columns) in [0, 1], stretched over the whole photo.

    Returns:
        (H', W', 3) uint8, no smaller than the photo and no smaller than ``weights``.
    """
    height, width = np.maximum(pixels.shape[:2], weights.shape)
    size = (int(width), int(height))
    mask = Image.fromarray(np.rint(weights * 255).astype(np.uint8))
    mask = mask.resize(size, Image.Resampling.BILINEAR)
    photo = Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)
    dimmed = np.asarray(photo.convert("L"), np.float64)[:, :, None] * VEIL
    lit = np.asarray(photo) * (1 - GLOW) + 255 * GLOW
    share = np.asarray(mask, np.float64)[:, :, None] / 255
    return np.rint(dimmed + share * (lit - dimmed)).astype(np.uint8)


def save_figure(
    figure: Figure,
    path_without_suffix: str | os.PathLike,
    formats: Sequence[str] = ("png", "pdf"),
) -> list[Path]:
    """Write a figure in every format, each file atomically.

    Args:
        figure: a figure of :func:`attention_figure`.
        path_without_suffix: path of the files; its folder is made, and dots in its
            name are kept.
        formats: ``png``, ``pdf``, ``svg`` or another format of matplotlib.

    Returns:
        The files, in the order of ``formats``.

    Raises:
        OSError: a file cannot be written.
        ValueError: a format is unknown to matplotlib.
    """
    stem = Path(path_without_suffix)
    files = []
    for kind in formats:
        path = stem.with_name(f"{stem.name}.{kind}")
        # Without a date the same figure gives the same bytes.
        metadata = {"CreationDate": None} if kind == "pdf" else None
        content = io.BytesIO()  # Matplotlib leaves a file open if the disk is full
        figure.savefig(content, format=kind, dpi=150, metadata=metadata)
        atomic_write(path, content.getvalue())
        files.append(path)
    return files


def figure_to_array(figure: Figure, dpi: int = 100) -> np.ndarray:
    """Return the pixels of a figure, (H, W, 3) uint8."""
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _check(words: Sequence[str], attention: np.ndarray, numbers: dict) -> None:
    """Validate the arguments of :func:`attention_figure`."""
    if attention.ndim != 3 or len(attention) < len(words):
        raise ValueError(
            f"`attention` must be ({len(words)} or more, rows, columns) for "
            f"{len(words)} words. Received: shape {attention.shape}"
        )
    for name, values in numbers.items():
        if values is not None and len(values) < len(words):
            raise ValueError(
                f"`{name}` must have one number for each of {len(words)} words. "
                f"Received: {len(values)}"
            )
    L = attention.shape[1] * attention.shape[2]
    locations = numbers["locations"]
    if locations is not None and not all(-1 <= location < L for location in locations):
        raise ValueError(
            f"`locations` must be in [-1, {L}). Received: {list(locations)}"
        )


def _panels(count: int, aspect: float) -> tuple[Figure, list[Axes]]:
    """Make `count` panels of equal size, height / width = `aspect`, text under each."""
    rows = -(-count // MOST_COLUMNS)
    columns = -(-count // rows)
    photo_high = _PANEL * min(aspect, _TALLEST)
    photo_wide = photo_high / aspect
    wide, high = _PANEL + _MARGIN, photo_high + _TEXT
    width, height = columns * wide + _MARGIN, rows * high + _MARGIN
    figure = Figure(figsize=(width, height), dpi=100)
    panels = []
    for index in range(count):
        row, column = divmod(index, columns)
        left = _MARGIN + column * wide + (_PANEL - photo_wide) / 2
        bottom = height - _MARGIN - row * high - photo_high
        box = left / width, bottom / height, photo_wide / width, photo_high / height
        panels.append(figure.add_axes(box))
    return figure, panels


def _show(axes: Axes, pixels: np.ndarray) -> None:
    axes.imshow(pixels, interpolation="antialiased", aspect="auto")
    axes.set_axis_off()


def _box_of(location: int, grid: tuple[int, int]) -> tuple[float, ...]:
    """Return (x0, y0, x1, y1) of a location, as fractions of the photo."""
    rows, columns = grid
    row, column = divmod(location, columns)
    return column / columns, row / rows, (column + 1) / columns, (row + 1) / rows


def _outline(axes: Axes, box: Sequence[float], linestyle="solid") -> None:
    """Draw the border of a box, in fractions of the photo, over a panel."""
    x0, y0, x1, y1 = box
    for colour, width in ((_SHADE, 2.6), (_ACCENT, 1.3)):
        axes.add_patch(
            Rectangle(
                *((x0, 1 - y1), x1 - x0, y1 - y0),
                transform=axes.transAxes,
                fill=False,
                edgecolor=colour,
                linewidth=width,
                linestyle=linestyle,
                joinstyle="miter",
                clip_on=False,
            )
        )


def _annotate(axes: Axes, text: str, offset: float, color, fontsize, weight) -> None:
    """Centre text `offset` points under a panel."""
    axes.annotate(
        text,
        (0.5, 0),
        (0, offset),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="center",
        va="top",
        color=color,
        fontsize=fontsize,
        weight=weight,
        parse_math=False,  # print dollar signs as they are
    )
