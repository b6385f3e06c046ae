"""Draw the attention of each word over the photo.

As in Figures 2 and 3 of arXiv:1502.03044v3: alpha_t, upsampled by 16 and smoothed with
a Gaussian, over the photo; bright is where alpha_t is large.
"""

import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from PIL import Image

from show_attend_tell.data.region import smoothing
from show_attend_tell.inference.photos import Failure
from show_attend_tell.runtime.errors import CaptionError, plural
from show_attend_tell.runtime.files import LONGEST_NAME, atomic_write

if TYPE_CHECKING:  # slow, and pages need none of it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from show_attend_tell.inference.engine import Engine
    from show_attend_tell.inference.result import Caption


class Named(Protocol):
    """A result with the path of its photo."""

    @property
    def path(self) -> Path:
        """The path of the photo."""


Result = TypeVar("Result", bound=Named)
Pair = tuple[float, float]

UPSAMPLING = 16  # 2**4 pixels to a location, Sec. 5.4
VEIL = 0.3  # brightness of a pixel without attention
GLOW = 0.3  # white mixed into the pixel with most, so that it shows on dark photos too
DARK = 64  # mean brightness, of 255, below which a photo is lifted under attention
LIFTED = 100  # to this mean: a usual photo's, so that its veiled parts stay visible
MAX_LIFT = 8.0
MAX_COLUMNS = 7

# The text by which a figure of this package is known, as each format stores it.
_MARK = "show-attend-tell, figure of attention"
_MARKED: dict[str, dict[str, str | None]] = {
    "png": {"Software": _MARK},
    "svg": {"Creator": _MARK},
    # Without a date the same figure gives the same bytes.
    "pdf": {"Creator": _MARK, "CreationDate": None},
}
_SUFFIX_BYTES = 10  # reserved in a file name for the format
# inches
_PANEL = 1.75
_TEXT = 0.5
_MARGIN = 0.1
# inches, of heads
_HEAD_PANEL = 0.95
_GAP = 0.06
_LABEL = 0.85
_TITLE = 0.3
_NOTE = 0.25  # inches of a line below the panels
_LOWEST = 0.3  # inches of a row of heads, for two lines of its label
_TALLEST = 1.4  # height / width of a panel; taller photos become narrower
# Text in points from a point of a panel; dollar signs are printed as they are.
_BESIDE: dict[str, Any] = {
    "xycoords": "axes fraction",
    "textcoords": "offset points",
    "parse_math": False,
}
# outline of a location, visible on any photo
_ACCENT = "#ffb000"
_SHADE = "black"
_INKS = {False: ("white", "black", "0.4"), True: ("0.08", "0.95", "0.65")}


def attention_figure(
    photo: Image.Image | np.ndarray,
    words: Sequence[str],
    attention: np.ndarray,
    beta: Sequence[float] | np.ndarray | None = None,
    probabilities: Sequence[float] | np.ndarray | None = None,
    dark: bool = False,
    locations: Sequence[int] | np.ndarray | None = None,
    region: Sequence[float] | None = None,
    region_words: int | None = None,
) -> "Figure":
    """Draw the photo, then the photo under the attention of each word.

    Every map is scaled by its own largest value, so that attention spread evenly
    leaves the whole photo bright.

    Args:
        photo: RGB, exactly the part that the network sees, as
            :func:`data.preprocessing.to_view` returns it; of any size.
        words: T words; append ``<end>`` to draw the end word too.
        attention: (T, rows, columns) weights alpha; further rows are ignored.
        beta: T gates, printed under the words.
        probabilities: T numbers in [0, 1], p of each word.
        dark: whether to draw light text on a dark background.
        locations: T indices in [0, rows * columns), the location that hard attention
            selected for each word, outlined; -1 for none.
        region: (x0, y0, x1, y1) as fractions of the photo, outlined in every panel.
        region_words: number of words that are written from the region; a note says so
            if others follow.

    Returns:
        A figure that belongs to no window and no global state of matplotlib.

    Raises:
        ValueError: `attention` does not fit the words.
    """
    attention = np.asarray(attention, np.float64)
    T = len(words)
    if attention.ndim != 3 or len(attention) < T:
        raise ValueError(
            f"`attention` must be ({T} or more, rows, columns) for {T} words. "
            f"Received: shape {attention.shape}"
        )
    pixels = np.asarray(photo, np.uint8)
    _, rows, columns = attention.shape
    ground, ink, faint = _INKS[dark]
    wide, high = _photo_size(pixels, _PANEL)
    note = region_note(region_words, T)
    count = T + 1  # with the photo itself
    # As few lines as fit, and panels spread evenly over them.
    lines = math.ceil(count / MAX_COLUMNS)
    figure, panels = _panels(
        count,
        columns=math.ceil(count / lines),  # rather than a short last line
        size=(wide, high),
        pitch=(_PANEL + _MARGIN, high + _TEXT),
        origin=(_MARGIN + (_PANEL - wide) / 2, _MARGIN),
        margins=(_MARGIN, _MARGIN + (_NOTE if note else 0)),
        region=region,
    )
    figure.set_facecolor(ground)
    _write_note(figure, note, faint)
    _show(panels[0], pixels)
    below = _BESIDE | {"ha": "center", "va": "top"}
    bold = below | {"weight": "bold"}
    for t, (axes, word) in enumerate(zip(panels[1:], words, strict=True)):
        _show_map(axes, pixels, attention[t])
        if locations is not None and locations[t] >= 0:
            row, column = divmod(int(locations[t]), columns)
            cell = np.array([column, row, column + 1, row + 1])
            _outline(axes, cell / [columns, rows, columns, rows])
        size = 11 * min(1, 15 / max(len(word), 1))  # a long word fits its panel
        axes.annotate(word, (0.5, 0), (0, -4), **bold, color=ink, fontsize=size)
        printed = {"p": probabilities, "β": beta}
        line = "   ".join(
            f"{name} {values[t]:.2f}"
            for name, values in printed.items()
            if values is not None
        )
        axes.annotate(line, (0.5, 0), (0, -20), **below, color=faint, fontsize=8.5)
    return figure


def heads_figure(
    engine: "Engine", caption: "Caption", dark: bool = False
) -> "Figure | None":
    """Draw the attention of a Transformer's heads; see :meth:`Engine.head_attention`.

    ``engine`` is the engine that generated the caption.
    """
    attention = engine.head_attention(caption)
    if attention is None:
        return None
    rows = head_rows(attention.weights, attention.layer, attention.head)
    return maps_figure(
        caption.view, caption.words, rows, dark, caption.region, caption.region_words
    )


def head_rows(
    weights: np.ndarray, layer: int, head: int
) -> list[tuple[str, np.ndarray]]:
    """Return the labelled maps of each head of one layer, then the mean of each layer.

    Args:
        weights: (layers, heads, T, rows, columns) attention weights.
        layer: number, from 1, of the layer whose heads are drawn.
        head: number, from 1, of the head that is alpha; 0 if alpha is their mean.
    """
    rows = []
    for j, maps in enumerate(weights[layer - 1], start=1):
        mark = " (α)" if j == head else ""
        rows.append((f"layer {layer}\nhead {j}{mark}", maps))
    for k, heads in enumerate(weights, start=1):
        mark = " (α)" if k == layer and head == 0 else ""
        rows.append((f"layer {k}\nmean{mark}", heads.mean(axis=0)))
    return rows


def maps_figure(
    photo: Image.Image | np.ndarray,
    words: Sequence[str],
    rows: Sequence[tuple[str, np.ndarray]],
    dark: bool = False,
    region: Sequence[float] | None = None,
    region_words: int | None = None,
) -> "Figure":
    """Draw labelled rows of maps over the photo, a column for each word.

    ``rows`` are the label of each row and its maps, (T, rows, columns). See
    :func:`attention_figure` for the other arguments and the figure; every map is scaled
    by its own largest value.
    """
    pixels = np.asarray(photo, np.uint8)
    ground, ink, faint = _INKS[dark]
    wide, high = _photo_size(pixels, _HEAD_PANEL)
    T = len(words)
    note = region_note(region_words, T)
    figure, panels = _panels(
        len(rows) * T,
        columns=T,
        size=(wide, high),
        pitch=(wide + _GAP, max(high, _LOWEST) + _GAP),
        origin=(_LABEL, _TITLE),
        margins=(_LABEL + _GAP, _TITLE + _GAP + (_NOTE if note else 0)),
        region=region,
    )
    figure.set_facecolor(ground)
    _write_note(figure, note, faint)
    left = _BESIDE | {"ha": "right", "va": "center", "fontsize": 7.5}
    for k, (label, maps) in enumerate(rows):
        panels[k * T].annotate(label, (0, 0.5), (-5, 0), **left, color=ink)
        for t in range(T):
            _show_map(panels[k * T + t], pixels, maps[t])
    for axes, word in zip(panels, words, strict=False):  # of the first row
        size = 9 * min(1, 10 / max(len(word), 1))  # a long word fits its panel
        axes.set_title(word, color=ink, fontsize=size, weight="bold", pad=4)
        axes.title.set_parse_math(False)
    return figure


def region_note(region_words: int | None, count: int) -> str:
    """Return why attention leaves a region, empty if it does not.

    Args:
        region_words: number of words that are written from the region, or None.
        count: number of words of the caption.
    """
    if region_words is None or count <= region_words:
        return ""
    return (
        f"The first {plural(region_words, 'word')} come from the dashed region; "
        "attention is free at the others."
    )


def shown_gates(beta: np.ndarray) -> np.ndarray | None:
    """Return the gates (T,) to draw; None for a model without gates."""
    return None if (beta == 1).all() else beta


def caption_figure(caption: "Caption", dark: bool = False) -> "Figure":
    """Draw the attention of one caption."""
    return attention_figure(
        caption.view,
        caption.words,
        caption.attention,
        beta=shown_gates(caption.beta),
        probabilities=np.exp(caption.word_log_probs),
        dark=dark,
        locations=caption.locations,
        region=caption.region,
        region_words=caption.region_words,
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
    down = smoothing(rows, UPSAMPLING)
    across = smoothing(columns, UPSAMPLING)
    drawn: np.ndarray = down @ weights @ across.T
    return drawn


def lift_of(pixels: np.ndarray) -> float:
    """Return the factor by which a photo is brighter under attention; 1 unless dark.

    Args:
        pixels: (H, W, 3) uint8.
    """
    mean = float(np.asarray(Image.fromarray(pixels).convert("L")).mean())
    return 1.0 if mean >= DARK else min(MAX_LIFT, LIFTED / max(mean, 1))


def overlay(pixels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Dim a photo where attention is low and lighten it where attention is high.

    A dark photo is brighter, or its dimmed part would be black.

    Args:
        pixels: (H, W, 3) uint8.
        weights: (rows, columns) in [0, 1], stretched over the whole photo.

    Returns:
        (H', W', 3) uint8, no smaller than the photo and no smaller than ``weights``.
    """
    # A small photo is enlarged, so that the map keeps its detail.
    height, width = np.maximum(pixels.shape[:2], weights.shape)
    size = (int(width), int(height))
    # The weights in 256 shades, as the pages store them.
    mask = Image.fromarray(np.rint(weights * 255).astype(np.uint8))
    mask = mask.resize(size, Image.Resampling.BILINEAR)
    lifted = np.minimum(pixels * lift_of(pixels), 255).astype(np.uint8)
    photo = Image.fromarray(lifted).resize(size, Image.Resampling.BICUBIC)
    # Grey where nothing looks, coloured and lighter where attention is.
    dimmed = np.asarray(photo.convert("L"), np.float64)[:, :, None] * VEIL
    lit = np.asarray(photo) * (1 - GLOW) + 255 * GLOW
    share = np.asarray(mask, np.float64)[:, :, None] / 255
    return np.rint(dimmed + share * (lit - dimmed)).astype(np.uint8)


def save_figure(
    figure: "Figure",
    path_without_suffix: str | os.PathLike[str],
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
        content = io.BytesIO()  # Matplotlib leaves a file open if the disk is full
        figure.savefig(content, format=kind, dpi=150, metadata=_MARKED.get(kind))
        atomic_write(path, content.getvalue())
        files.append(path)
    return files


def figure_to_array(figure: "Figure", dpi: int = 100) -> np.ndarray:
    """Return the pixels of a figure, (H, W, 3) uint8."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(dpi)
    canvas: Any = FigureCanvasAgg(figure)  # its methods have no types
    canvas.draw()
    # The canvas owns the buffer.
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def draw_figures(
    results: Iterable[Result | Failure],
    folder: str | Path,
    draw: Mapping[str, Callable[[Result, bool], "Figure | None"]],
    formats: Sequence[str] = ("png", "pdf"),
    dark: bool = False,
) -> Iterator[tuple[Result | Failure, list[Path]]]:
    """Write the figures of each result as it is generated.

    Figures are named after the photos; the second photo of a name gets ``-2``.

    Args:
        results: captions or words with a ``path``, and failures.
        folder: folder of the figures; it is made.
        draw: suffix of the figure's name -> function of a result and `dark` that draws
            it, or returns None.
        formats: see :func:`save_figure`.
        dark: whether to draw light text on a dark background.

    Yields:
        Each result with the files written for it, none for a failure.

    Raises:
        CaptionError: see :func:`require_figures`.
        OSError: a file cannot be written.
    """
    taken: set[str] = set()
    for result in results:
        files: list[Path] = []
        if not isinstance(result, Failure):
            name = result.path.stem
            for suffix, function in draw.items():
                if figure := function(result, dark):
                    # From the name before, so that they share a number: a-2, a-2-heads.
                    name = _free_name(f"{name}{suffix}", taken)
                    for kind in formats:
                        _require_figure(Path(folder) / f"{name}.{kind}")
                    files += save_figure(figure, Path(folder) / name, formats)
        yield result, files


def require_figures(
    photos: Iterable[object],
    folder: Path,
    suffixes: Iterable[str],
    formats: Sequence[str],
) -> None:
    """Raise unless the files that :func:`draw_figures` writes are absent or figures.

    Args:
        photos: the photos to draw; only paths matter.
        folder: folder of the figures.
        suffixes: of the figures' names, as in ``draw``.
        formats: formats of the figures.

    Raises:
        CaptionError: a file of that name is no figure of this package.
        OSError: a file cannot be read.
    """
    suffixes = list(suffixes)
    taken: set[str] = set()
    for photo in photos:
        if not isinstance(photo, Path):
            continue
        name = photo.stem
        for suffix in suffixes:
            name = _free_name(f"{name}{suffix}", taken)
            for kind in formats:
                _require_figure(folder / f"{name}.{kind}")


def _require_figure(path: Path) -> None:
    """Raise a CaptionError unless a file is absent, empty or a figure."""
    if not path.exists():
        return
    if path.is_file():
        # The whole file: a PDF has its metadata at the end.
        content = path.read_bytes()
        if not content or _MARK.encode() in content:
            return
    raise CaptionError(
        f"{path}: must be absent, or a figure of this program. Received: another file, "
        "or a figure of an earlier version; remove it, or name another folder"
    )


def _free_name(stem: str, taken: set[str]) -> str:
    """Return a name that is not taken yet, ignoring case, and add it to `taken`.

    A stem that leaves no room for the number and the suffix is cut.
    """
    name = _cut(stem, LONGEST_NAME - _SUFFIX_BYTES)
    count = 1
    # File systems of macOS and Windows ignore case.
    while name.lower() in taken:
        count += 1
        number = f"-{count}"
        name = _cut(stem, LONGEST_NAME - _SUFFIX_BYTES - len(number)) + number
    taken.add(name.lower())
    return name


def _cut(name: str, limit: int) -> str:
    """Return the start of a name of at most `limit` bytes, without half a letter."""
    if len(os.fsencode(name)) <= limit:
        return name
    return os.fsencode(name)[:limit].decode("utf-8", "ignore") or "photo"


def _photo_size(pixels: np.ndarray, panel: float) -> Pair:
    """Return the width and height of photos (H, W, 3) in panels that are so wide."""
    aspect = pixels.shape[0] / pixels.shape[1]
    high = panel * min(aspect, _TALLEST)
    return high / aspect, high


def _panels(
    count: int,
    columns: int,
    size: Pair,
    pitch: Pair,
    origin: Pair,
    margins: Pair,
    region: Sequence[float] | None,
) -> tuple["Figure", list["Axes"]]:
    """Make `count` panels of equal size, in rows of `columns`.

    All lengths are widths and heights in inches.

    Args:
        count: number of panels.
        columns: number of panels in a row.
        size: of a panel.
        pitch: distances from a panel to its right and lower neighbours, corner to
            corner.
        origin: of the first panel, from the left and from the top.
        margins: what the figure has beyond a pitch for each panel.
        region: outlined in every panel, in fractions of the photo, or None.
    """
    # Not pyplot, which would keep each figure and change global settings.
    from matplotlib.figure import Figure

    width = columns * pitch[0] + margins[0]
    height = math.ceil(count / columns) * pitch[1] + margins[1]
    figure = Figure(figsize=(width, height), dpi=100)
    panels = []
    for index in range(count):
        row, column = divmod(index, columns)
        left = origin[0] + column * pitch[0]
        # Matplotlib counts from the lower edge.
        bottom = height - origin[1] - row * pitch[1] - size[1]
        box = left / width, bottom / height, size[0] / width, size[1] / height
        panels.append(figure.add_axes(box))
        if region is not None:
            _outline(panels[-1], region, linestyle=(0, (4, 2)))
    return figure, panels


def _write_note(figure: "Figure", note: str, ink: str) -> None:
    """Write a line below the panels, from the left margin."""
    if note:
        width, height = figure.get_size_inches()
        place = _MARGIN / width, _MARGIN / height
        figure.text(*place, note, color=ink, fontsize=8.5, va="bottom", wrap=True)


def _show(axes: "Axes", pixels: np.ndarray) -> None:
    axes.imshow(pixels, interpolation="antialiased", aspect="auto")
    axes.set_axis_off()


def _show_map(axes: "Axes", pixels: np.ndarray, weights: np.ndarray) -> None:
    """Show a photo under one word's weights, scaled by the largest of them."""
    drawn = attention_map(weights)
    _show(axes, overlay(pixels, drawn / max(drawn.max(), 1e-12)))


def _outline(
    axes: "Axes", box: Sequence[float] | np.ndarray, linestyle: Any = "solid"
) -> None:
    """Draw the border of a box, in fractions of the photo, over a panel."""
    from matplotlib.patches import Rectangle

    x0, y0, x1, y1 = box
    for edgecolor, linewidth in ((_SHADE, 2.6), (_ACCENT, 1.3)):
        border = Rectangle(
            # y grows downwards in the photo and upwards in the panel.
            (x0, 1 - y1),
            x1 - x0,
            y1 - y0,
            fill=False,
            linestyle=linestyle,
            joinstyle="miter",
            clip_on=False,
            transform=axes.transAxes,
            edgecolor=edgecolor,
            linewidth=linewidth,
        )
        axes.add_patch(border)
