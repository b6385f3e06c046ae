"""Write figures of captions, one for each photo, or one page for all of them."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from show_attend_tell.inference.result import Caption, Failure
from show_attend_tell.inference.visualization.attention_figure import (
    attention_figure,
    save_figure,
)
from show_attend_tell.inference.visualization.attention_page import (
    Unit,
    shown_gates,
    stream_page,
)
from show_attend_tell.runtime.files import LONGEST_NAME, atomic_path

_SUFFIX = 10  # bytes reserved in a file name for the format


def draw_figures(
    results: Iterable[Caption | Failure],
    folder: str | Path,
    formats: Sequence[str] = ("png", "pdf"),
    dark: bool = False,
    draw_heads: Callable[[Caption, bool], Figure | None] | None = None,
    draw: Callable[..., Figure] | None = None,
) -> Iterator[tuple[Caption | Failure, list[Path]]]:
    """Write the attention figures of each caption as it is generated.

    Figures are named after the photos; the second photo of a name gets ``-2``.

    Args:
        results: results of ``CaptioningPipeline.caption_photos``.
        folder: folder of the figures; it is made.
        formats: see :func:`visualization.attention_figure.save_figure`.
        dark: whether to draw light text on a dark background.
        draw_heads: draws a second figure of a caption, ``<name>-heads``, or returns
            None.
        draw: draws a result that is no caption, in place of :func:`caption_figure`;
            the result has a ``path``.

    Yields:
        Each result with the files written for it, none for a failure.
    """
    taken: set[str] = set()
    for result in results:
        if isinstance(result, Failure):
            yield result, []
            continue
        name = _free_name(result.path.stem, taken)
        figure = (draw or caption_figure)(result, dark)
        files = save_figure(figure, Path(folder) / name, formats)
        if draw_heads and (figure := draw_heads(result, dark)):
            name = _free_name(f"{name}-heads", taken)
            files += save_figure(figure, Path(folder) / name, formats)
        yield result, files


def caption_figure(caption: Caption, dark: bool = False) -> Figure:
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
    )


def _free_name(stem: str, taken: set[str]) -> str:
    """Return a name that is not taken yet, ignoring case, and add it to `taken`.

    A stem that leaves no room for the number and the suffix is cut.
    """
    name, count = _cut(stem, LONGEST_NAME - _SUFFIX), 1
    while name.lower() in taken:
        count += 1
        number = f"-{count}"
        name = _cut(stem, LONGEST_NAME - _SUFFIX - len(number)) + number
    taken.add(name.lower())
    return name


def _cut(name: str, limit: int) -> str:
    """Return the start of a name of at most `limit` bytes, without half a letter."""
    if len(os.fsencode(name)) <= limit:
        return name
    return os.fsencode(name)[:limit].decode("utf-8", "ignore") or "photo"


def write_attention_page(
    results: Iterable[Caption | Failure],
    path: str | Path,
    describe: Callable[..., dict] | None = None,
    unit: Unit = "word",
) -> Iterator[Caption | Failure]:
    """Write captions into one page as they are generated; the file is atomic.

    Args:
        results: results of ``CaptioningPipeline.caption_photos``.
        path: path of the page; its folder is made.
        describe: describes a result that is no caption, see
            :func:`visualization.attention_page.stream_page`.
        unit: the page's name for a part of the text.

    Yields:
        Each result; the file exists once all have been taken.

    Raises:
        OSError: the file cannot be written.
    """
    taken: list[Caption | Failure] = []  # by the page, and not yielded yet

    def captions() -> Iterator[Caption]:
        for result in results:
            taken.append(result)
            if not isinstance(result, Failure):
                yield result

    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for piece in stream_page(captions(), describe, unit):
            file.write(piece)
            yield from taken
            taken.clear()
