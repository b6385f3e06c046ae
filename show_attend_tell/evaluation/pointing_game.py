"""Scores of scenes: are captions exactly right, and does attention point at nouns?

A caption names an object when the words of the object's name, "red circle", follow
each other in it. The noun is the name's last word, and the attention that counts is
alpha_t of the step t that wrote it. It points at the object when the centre of the
cell where alpha_t is largest lies inside the object's box; boxes play no part in the
captioner's training. This is the pointing game of Zhang et al., arXiv:1608.00507,
without a tolerance.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Box = tuple[float, float, float, float]


class Pointing(NamedTuple):
    """Where attention was when a caption named an object of the photo."""

    name: str
    step: int  # t, of the noun, from 0
    cell: tuple[int, int]  # row and column of the largest alpha_t
    point: tuple[float, float]  # x and y of the cell's centre in the photo, pixels
    hit: bool


def pointings(
    words: Sequence[str],
    alpha: np.ndarray,
    grid: tuple[int, int],
    objects: Iterable[Mapping[str, Any]],
    region: Box,
) -> list[Pointing]:
    """Compare attention with the box of every object that a caption names.

    Args:
        words: the caption, T words without special tokens.
        alpha: (T, L) attention weights; steps after the words are passed over.
        grid: rows and columns of the map; L is their product, row after row.
        objects: of the photo, ``{"name": str, "box": (x0, y0, x1, y1)}`` in pixels,
            x1 and y1 exclusive. Of several with one name a hit in any counts.
        region: (x0, y0, x1, y1), the part of the photo that the map covers, in pixels;
            all of it where photos are squashed.

    Returns:
        One entry per name in the caption, in order of mention.

    Raises:
        ValueError: ``alpha`` does not fit ``words`` or ``grid``.
    """
    alpha = np.asarray(alpha)
    if (
        alpha.ndim != 2
        or alpha.shape[1] != grid[0] * grid[1]
        or len(alpha) < len(words)
    ):
        raise ValueError(
            f"`alpha` must have shape ({len(words)} or more, {grid[0] * grid[1]}) for "
            f"{len(words)} words and a grid of {grid}. Received: {alpha.shape}"
        )
    boxes: dict[tuple[str, ...], list[Box]] = {}
    for item in objects:
        boxes.setdefault(tuple(item["name"].split()), []).append(tuple(item["box"]))
    found = []
    for step in range(len(words)):
        for name, candidates in boxes.items():
            if tuple(words[max(step + 1 - len(name), 0) : step + 1]) == name:
                cell = divmod(int(np.argmax(alpha[step])), grid[1])
                point = cell_centre(cell, grid, region)
                hit = any(_contains(box, point) for box in candidates)
                found.append(Pointing(" ".join(name), step, cell, point, hit))
    return found


def cell_centre(
    cell: tuple[int, int], grid: tuple[int, int], region: Box
) -> tuple[float, float]:
    """Return x and y, in pixels of the photo, of the centre of a cell (row, column)."""
    (row, column), (rows, columns) = cell, grid
    x0, y0, x1, y1 = region
    return (
        x0 + (column + 0.5) * (x1 - x0) / columns,
        y0 + (row + 0.5) * (y1 - y0) / rows,
    )


def _contains(box: Box, point: tuple[float, float]) -> bool:
    x0, y0, x1, y1 = box
    return x0 <= point[0] < x1 and y0 <= point[1] < y1


def pointing_score(found: Iterable[Pointing]) -> float | None:
    """Return the share of hits, 0 to 1, or None where no object was named.

    Args:
        found: the entries of all photos together: every noun counts the same.
    """
    hits = [one.hit for one in found]
    return sum(hits) / len(hits) if hits else None


def is_exact(words: Sequence[str], references: Iterable[Sequence[str]]) -> bool:
    """Tell whether a caption equals one of its references word for word.

    Args:
        words: the caption.
        references: word lists made by the same tokenizer.
    """
    return any(list(words) == list(reference) for reference in references)
