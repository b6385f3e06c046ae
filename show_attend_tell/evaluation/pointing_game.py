"""Score captions of scenes: exact matches, and attention that points at the noun.

A caption names an object if it contains the words of the object's name, "red circle",
one after the other. The noun is the last word of the name, and the attention that
counts is alpha_t of the step t that generated it. Attention points at the object if
the centre of the cell where alpha_t is largest is inside the object's box; boxes play
no part in training. This is the pointing game of Zhang et al., arXiv:1608.00507,
without a tolerance.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import Box, load_photo, seen_region
from show_attend_tell.evaluation.metrics.bootstrap import Statistic, ratio_statistic
from show_attend_tell.runtime.errors import PhotoError


class Mention(NamedTuple):
    """An object that a caption names, and the peak of attention at its noun."""

    name: str
    step: int  # t of the noun, from 0
    cell: tuple[int, int]  # row and column of the largest alpha_t
    point: tuple[float, float]  # x and y of the cell's centre in the photo, pixels
    hit: bool


def find_mentions(
    words: Sequence[str],
    alpha: np.ndarray,
    grid: tuple[int, int],
    objects: Iterable[Mapping[str, Any]],
    region: Box,
) -> list[Mention]:
    """Compare attention with the box of every object that a caption names.

    Args:
        words: the caption, T words without special tokens.
        alpha: (T, L) attention weights; steps after the words are ignored.
        grid: rows and columns of the map; L is their product, in row-major order.
        objects: objects of the photo, ``{"name": str, "box": (x0, y0, x1, y1)}`` in
            pixels, x1 and y1 exclusive. If several have the same name, a point inside
            any of their boxes is a hit.
        region: (x0, y0, x1, y1), the part of the photo that the map covers, in pixels.

    Returns:
        One entry per name in the caption, in order of mention.

    Raises:
        ValueError: `alpha` does not fit `words` or `grid`.
    """
    alpha = np.asarray(alpha)
    rows, columns = grid
    if alpha.ndim != 2 or alpha.shape[1] != rows * columns or len(alpha) < len(words):
        raise ValueError(
            f"`alpha` must have shape ({len(words)} or more, {rows * columns}) for "
            f"{len(words)} words and a grid of {grid}. Received: {alpha.shape}"
        )
    boxes: dict[tuple[str, ...], list[Box]] = {}
    for item in objects:
        boxes.setdefault(tuple(item["name"].split()), []).append(tuple(item["box"]))
    mentions = []
    for step in range(len(words)):
        for name, candidates in boxes.items():
            if tuple(words[max(step + 1 - len(name), 0) : step + 1]) == name:
                cell = divmod(int(np.argmax(alpha[step])), columns)
                point = cell_centre(cell, grid, region)
                hit = any(_contains(box, point) for box in candidates)
                mentions.append(Mention(" ".join(name), step, cell, point, hit))
    return mentions


def visible_regions(
    photos: Iterable[Photo], identity: Mapping[str, Any]
) -> tuple[dict[str, Box], tuple[str, ...]]:
    """Return the region that the encoder sees of each photo with objects, and notes.

    Photos that cannot be read are skipped and counted in a note.

    Args:
        photos: photos of the manifest; those without objects are ignored.
        identity: identity of the encoder, with ``image_size`` and ``resize``.

    Returns:
        Photo id -> (x0, y0, x1, y1) in pixels of the photo, and one note at most.
    """
    regions, errors = {}, []
    for photo in photos:
        if not photo.objects:
            continue
        try:
            size = load_photo(photo.path).size
        except PhotoError as error:
            errors.append(error)
        else:
            side, resize = identity["image_size"], identity["resize"]
            regions[photo.id] = seen_region(size, side, resize)
    if not errors:
        return regions, ()
    effect = "pointing leaves out" if regions else "no pointing:"
    count = f"{len(errors)} photos that cannot be read"
    return regions, (f"{effect} {count}: {errors[0]}",)


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


def pointing_statistic(mentions: Iterable[Sequence[Mention]]) -> Statistic:
    """Return the statistic of the share of hits, 0 to 1, among all mentions.

    Args:
        mentions: mentions of each photo; every noun has the same weight.
    """
    of_photos = list(mentions)
    hits = [sum(mention.hit for mention in found) for found in of_photos]
    return ratio_statistic(hits, list(map(len, of_photos)))


def is_exact(words: Sequence[str], references: Iterable[Sequence[str]]) -> bool:
    """Return whether a caption equals one of its references word for word.

    Args:
        words: the caption.
        references: word lists made by the same tokenizer.
    """
    return any(list(words) == list(reference) for reference in references)
