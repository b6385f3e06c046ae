"""Figures of attention: what the captioner looked at while it wrote each word.

As in Figures 2 and 3 of arXiv:1502.03044v3: alpha_t, upsampled by 16 and smoothed with
a Gaussian, lies over the photo; bright is where the word came from.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

UPSAMPLING = 16  # 2**4 pixels to a cell, Sec. 5.4
SIGMA = 0.8  # of the Gaussian, in cells; the authors' code takes 20 / 16
VEIL = 0.3  # brightness left to what gets no attention
GLOW = 0.3  # white mixed into what gets most, so that it shows on dark photos too
MOST_COLUMNS = 7

_PANEL, _TEXT, _MARGIN = 1.75, 0.5, 0.1  # inches
_TALLEST = 1.4  # height of a panel by its width; taller photos become narrower
_ACCENT, _SHADE = "#ffb000", "black"  # outline of a chosen location, seen on any photo
_INKS = {False: ("white", "black", "0.4"), True: ("0.08", "0.95", "0.65")}


def attention_figure(
    photo: Image.Image | np.ndarray,
    words: Sequence[str],
    alpha: np.ndarray,
    grid: tuple[int, int],
    beta: Sequence[float] | None = None,
    probabilities: Sequence[float] | None = None,
    dark: bool = False,
    locations: Sequence[int] | None = None,
) -> Figure:
    """Draw the photo, then the photo under the attention of each word.

    Every map is scaled by its own largest value, so that attention spread evenly
    leaves the whole photo bright.

    Args:
        photo: RGB, exactly the part that the network saw, as ``Encoder.preprocess``
            returns it; of any size.
        words: T of them; append ``<end>`` to see the end word too.
        alpha: (T, L) attention weights; rows behind the words are passed over.
        grid: rows and columns of the map; L is their product, row after row.
        beta: T gates, written under the words as they are.
        probabilities: T numbers in [0, 1], p of each word.
        dark: light text on a dark ground.
        locations: T indices in [0, L), the location that hard attention chose for
            each word, outlined; -1 where it chose none.

    Returns:
        A figure that belongs to no window and no global state of matplotlib.

    Raises:
        ValueError: ``alpha``, ``beta``, ``probabilities`` or ``locations`` do not fit.
    """
    alpha = np.asarray(alpha, np.float64)
    numbers = {"beta": beta, "probabilities": probabilities, "locations": locations}
    _check(words, alpha, grid, numbers)
    pixels = np.asarray(photo, np.uint8)
    ground, ink, faint = _INKS[dark]
    figure, panels = _panels(len(words) + 1, pixels.shape[0] / pixels.shape[1])
    figure.set_facecolor(ground)
    _show(panels[0], pixels)
    for t, (axes, word) in enumerate(zip(panels[1:], words, strict=True)):
        weights = attention_map(alpha[t], grid)
        _show(axes, overlay(pixels, weights / max(weights.max(), 1e-12)))
        if locations is not None and locations[t] >= 0:
            _outline(axes, int(locations[t]), grid)
        size = 11 * min(1, 15 / max(len(word), 1))  # a long word fits its panel
        _write(axes, word, -4, color=ink, fontsize=size, weight="bold")
        line = _numbers(t, probabilities, beta)
        _write(axes, line, -20, color=faint, fontsize=8.5, weight="normal")
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


def attention_map(alpha: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Upsample the attention of one word by 16 and smooth it with a Gaussian.

    The map mirrors at its edges: even attention stays even, and none is lost.

    Args:
        alpha: (L,) attention weights.
        grid: rows and columns of the map.

    Returns:
        (16 rows, 16 columns) float64 over the square that the network saw.
    """
    rows, columns = grid
    cells = np.reshape(np.asarray(alpha, np.float64), (rows, columns))
    return _smoothing(rows) @ cells @ _smoothing(columns).T


def _smoothing(cells: int) -> np.ndarray:
    """Return the weight of every cell in every upsampled pixel, (16 cells, cells)."""
    centres = np.arange(cells) + 0.5
    pixels = (np.arange(cells * UPSAMPLING) + 0.5) / UPSAMPLING
    mirrored = np.stack([centres, -centres, 2 * cells - centres])
    distance = (pixels[:, None, None] - mirrored) / SIGMA  # (pixels, 3, cells)
    weights = np.exp(-0.5 * distance**2).sum(axis=1)
    return weights / weights.sum(axis=1, keepdims=True)


def overlay(pixels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Dim a photo where it gets little attention and light it where it gets most.

    Args:
        pixels: (H, W, 3) uint8.
        weights: (rows, columns) in [0, 1], stretched over all of the photo.

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
    """Write a figure in every format, each file all or nothing.

    Args:
        figure: from :func:`attention_figure`.
        path_without_suffix: folder, which is made, and name; dots in it are kept.
        formats: ``png``, ``pdf``, ``svg`` or another that matplotlib writes.

    Returns:
        The files, in the order of ``formats``.

    Raises:
        OSError: a file cannot be written.
        ValueError: matplotlib does not know a format.
    """
    stem = Path(path_without_suffix)
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = []
    for kind in formats:
        path = stem.with_name(f"{stem.name}.{kind}")
        temporary = stem.with_name(f"{stem.name}.{kind}.tmp")
        # Without a date the same figure gives the same bytes.
        metadata = {"CreationDate": None} if kind == "pdf" else None
        try:
            figure.savefig(temporary, format=kind, dpi=150, metadata=metadata)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        files.append(path)
    return files


def figure_to_array(figure: Figure, dpi: int = 100) -> np.ndarray:
    """Draw a figure into pixels, (H, W, 3) uint8, as TensorBoard takes them."""
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _check(words: Sequence[str], alpha: np.ndarray, grid, numbers: dict) -> None:
    locations = grid[0] * grid[1]
    if alpha.ndim != 2 or alpha.shape[1] != locations or len(alpha) < len(words):
        raise ValueError(
            f"`alpha` must be ({len(words)} or more, {locations}) for {len(words)} "
            f"words and a grid of {tuple(grid)}. Received: shape {alpha.shape}"
        )
    for name, values in numbers.items():
        if values is not None and len(values) < len(words):
            raise ValueError(
                f"`{name}` must have one number for each of {len(words)} words. "
                f"Received: {len(values)}"
            )
    places = numbers["locations"]
    if places is not None and not all(-1 <= one < locations for one in places):
        raise ValueError(
            f"`locations` must lie in [-1, {locations}). Received: {list(places)}"
        )


def _panels(count: int, aspect: float) -> tuple[Figure, list[Axes]]:
    """Lay out panels of equal size, height / width = ``aspect``, text under each."""
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


def _outline(axes: Axes, location: int, grid: tuple[int, int]) -> None:
    """Draw the border of a cell over a panel."""
    rows, columns = grid
    row, column = divmod(location, columns)
    corner = column / columns, 1 - (row + 1) / rows
    for colour, width in ((_SHADE, 2.6), (_ACCENT, 1.3)):
        axes.add_patch(
            Rectangle(
                *(corner, 1 / columns, 1 / rows),
                transform=axes.transAxes,
                fill=False,
                edgecolor=colour,
                linewidth=width,
                joinstyle="miter",
                clip_on=False,
            )
        )


def _write(axes: Axes, text: str, offset: float, color, fontsize, weight) -> None:
    """Centre text ``offset`` points under a panel."""
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
        parse_math=False,  # a dollar sign is a dollar sign
    )
