"""Parse regions of photos, compute how much of each location they cover, smooth maps.

A region is a box (x0, y0, x1, y1) in pixels of the photo as it is displayed, after its
EXIF orientation; decimals are allowed, x1 and y1 are exclusive. With ``%`` a number
is a share of the width or height.
"""

import math
from collections.abc import Sequence

import numpy as np

from show_attend_tell.data.preprocessing import Box, box_to_square
from show_attend_tell.runtime.errors import CaptionError, quote

# Deviation of the Gaussian that smooths a map, in locations: 13 pixels of the 224 that
# VGG sees, a 15th of the field that a location depends on; the authors' code has 20.
SIGMA = 0.8


def parse_region(
    region: str | Sequence[str | float], photo_size: tuple[int, int] = (100, 100)
) -> Box:
    """Return four numbers, or the text ``x0,y0,x1,y1``, as pixels.

    Args:
        region: the numbers or the text, whose numbers may end with ``%``.
        photo_size: (width, height) of the photo; other sizes serve to validate.

    Raises:
        CaptionError: there are not four finite numbers.
    """
    try:
        parts: Sequence[str | float]
        parts = region.split(",") if isinstance(region, str) else region
        sides = (*photo_size, *photo_size)
        numbers = [_pixels(x, n) for x, n in zip(parts, sides, strict=True)]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)):
        raise CaptionError(
            "`region` must be four numbers x0,y0,x1,y1, in pixels of the photo or with "
            f"% of its size. Received: {quote(region)}; write it as 10,20,110,90"
        )
    x0, y0, x1, y1 = numbers
    return x0, y0, x1, y1


def _pixels(number: str | float, side: int) -> float:
    """Return a number in pixels; with ``%`` it is a share of a side."""
    text = number.strip() if isinstance(number, str) else number
    if isinstance(text, str) and text.endswith("%"):
        return float(text[:-1]) / 100 * side
    return float(text)


def region_in_view(
    region: str | Sequence[float],
    photo_size: tuple[int, int],
    side: int,
    resize: str,
) -> Box:
    """Clip a region in pixels to :func:`data.preprocessing.seen_region`.

    Returns:
        (x0, y0, x1, y1) as fractions of the network's square, 0 to 1.

    Raises:
        CaptionError: the region is malformed, empty, not inside the photo, or cropped
            away.
    """
    width, height = photo_size
    box = parse_region(region, photo_size)
    x0, y0, x1, y1 = box
    if not (x0 < x1 and y0 < y1):
        raise CaptionError(
            "`region` must have x0 < x1 and y0 < y1. "
            f"Received: {quote(box)}; order its corners"
        )
    if x0 < 0 or y0 < 0 or x1 > width or y1 > height:
        raise CaptionError(
            f"`region` must be inside the photo, 0,0,{width},{height}. "
            f"Received: {quote(box)}; correct it"
        )
    square = np.array(box_to_square(box, photo_size, side, resize))
    square = np.clip(square / side, 0, 1)
    if square[0] >= square[2] or square[1] >= square[3]:
        raise CaptionError(
            "`region` must overlap the part of the photo that the network sees, the "
            f"centre. Received: {quote(box)}; move it towards the centre"
        )
    x0, y0, x1, y1 = square.tolist()
    return x0, y0, x1, y1


def cell_shares(region: Box, grid: tuple[int, int]) -> np.ndarray:
    """Return m of :func:`show_attend_tell.reference.lstm.region_bias`.

    m_i is the share of cell i's area inside the region, divided by the largest share,
    so that a region smaller than a cell directs attention as much as a larger one.

    Args:
        region: (x0, y0, x1, y1) as fractions of the map, from :func:`region_in_view`.
        grid: (rows, columns) of the map; L is their product.

    Returns:
        (L,) float32 in [0, 1], in row-major order, the largest 1.
    """
    x0, y0, x1, y1 = region
    rows, columns = grid
    # Areas are products of the overlaps on both axes: (rows, columns)
    shares = np.outer(_overlaps(y0, y1, rows), _overlaps(x0, x1, columns))
    return shares.astype(np.float32).ravel()  # (rows, columns) -> (L,)


def smoothing(cells: int, upsampling: int = 1) -> np.ndarray:
    """Return the Gaussian that smooths one axis of a map of attention.

    The map is mirrored at its edges, so that even attention stays even and the sum of
    the weights is kept.

    Args:
        cells: rows or columns of the map.
        upsampling: points per cell, at equal distances.

    Returns:
        The weight of each cell at each point, (cells * upsampling, cells).
    """
    centres = np.arange(cells) + 0.5
    points = (np.arange(cells * upsampling) + 0.5) / upsampling
    # Each cell, and its images in the mirrors at both edges: (3, cells)
    mirrored = np.stack([centres, -centres, 2 * cells - centres])
    distance = (points[:, None, None] - mirrored) / SIGMA  # (points, 3, cells)
    weights: np.ndarray = np.exp(-0.5 * distance**2).sum(axis=1)  # -> (points, cells)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def smooth(alpha: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Return attention as it is drawn, smoothed over the map, (..., L) -> (..., L).

    Args:
        alpha: weights of the L locations, in row-major order.
        grid: (rows, columns) of the map.
    """
    rows, columns = grid
    maps: np.ndarray = np.reshape(alpha, (*np.shape(alpha)[:-1], rows, columns))
    maps = smoothing(rows) @ maps @ smoothing(columns).T
    return maps.reshape(np.shape(alpha))


def _overlaps(start: float, end: float, cells: int) -> np.ndarray:
    """Return how much of each of `cells` equal parts of [0, 1] is in [start, end].

    The largest is 1. Each axis is divided by its own maximum: the area of a tiny region
    would be 0 in floating point.
    """
    edges = np.arange(cells + 1) / cells
    inside = np.minimum(edges[1:], end) - np.maximum(edges[:-1], start)
    inside = np.clip(inside, 0, None)
    shares: np.ndarray = inside / inside.max()
    return shares
