"""Figures of captions, a file per photo, and the page of many."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from show_attend_tell.inference import attention_page as page
from show_attend_tell.inference.attention_figure import attention_figure, save_figure
from show_attend_tell.inference.result import Caption, Failure


def draw(
    results: Iterable[Caption | Failure],
    folder: str | Path,
    formats: Sequence[str] = ("png", "pdf"),
    dark: bool = False,
) -> Iterator[tuple[Caption | Failure, list[Path]]]:
    """Draw the attention of captions while they come, a figure each.

    Figures are named after the photos; the second photo of a name gets ``-2``.

    Args:
        results: of :func:`~show_attend_tell.inference.captioning.caption_photos`.
        folder: for the figures; it is made.
        formats: as in :func:`~show_attend_tell.inference.attention_figure.save_figure`.
        dark: light text on a dark ground.

    Yields:
        Every result with the files drawn for it, none for a failure.
    """
    taken: set[str] = set()
    for result in results:
        if isinstance(result, Failure):
            yield result, []
            continue
        name = _free_name(result.path.stem, taken)
        figure = figure_of(result, dark)
        yield result, save_figure(figure, Path(folder) / name, formats)


def figure_of(caption: Caption, dark: bool = False) -> Figure:
    """Draw the attention of one caption."""
    T, rows, columns = caption.attention.shape
    return attention_figure(
        caption.picture,
        caption.words,
        caption.attention.reshape(T, rows * columns),
        (rows, columns),
        beta=caption.beta,
        probabilities=np.exp(caption.word_log_probs),
        dark=dark,
        locations=caption.locations,
    )


def _free_name(stem: str, taken: set[str]) -> str:
    """Return a name not taken yet, in any case of letters, and take it."""
    name, count = stem, 1
    while name.lower() in taken:
        count += 1
        name = f"{stem}-{count}"
    taken.add(name.lower())
    return name


def write_page(
    results: Iterable[Caption | Failure], path: str | Path
) -> Iterator[Caption | Failure]:
    """Write captions into one page while they come, the file all or nothing.

    Args:
        results: of :func:`~show_attend_tell.inference.captioning.caption_photos`.
        path: of the page; its folder is made.

    Yields:
        Every result; the file is there when all have been taken.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    head, tail = page.template()
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(head)
            for result in results:
                if isinstance(result, Caption):
                    file.write(page.element(result))
                yield result
            file.write(tail)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
