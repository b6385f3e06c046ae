"""Measure whether a region around an object makes a caption name that object first.

A caption of the photo is generated for each of its objects, from the object's box as
its region. The object that a caption names first is the first name of any object of the
data set in it; a caption without such a name counts as a miss.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.preprocessing import Box
from show_attend_tell.data.region import cell_shares
from show_attend_tell.data.splits import Split
from show_attend_tell.evaluation.validation import best_words
from show_attend_tell.models.generator import Generator


class RegionControl(NamedTuple):
    """Shares of the regions whose object is named first, 0 to 1; None for no region."""

    every: float | None  # of all regions
    other: float | None  # of objects that the caption of the whole photo names later


def first_name(words: Sequence[str], names: Collection[str]) -> str | None:
    """Return the name that occurs first in a caption, of two at one word the longer."""
    by_length = sorted((name.split() for name in names), key=len, reverse=True)
    for start in range(len(words)):
        for name in by_length:
            if list(words[start : start + len(name)]) == name:
                return " ".join(name)
    return None


class _Request(NamedTuple):
    """A region to caption."""

    row: int  # of the photo in the feature file
    name: str  # of the object in the region
    plain: str | None  # name of the object named first without a region
    shares: np.ndarray  # (L,)


def measure_region_control(
    model: Generator,
    reader: FeatureReader,
    data: Split,
    captions: Mapping[str, str],
    visible: Mapping[str, Box],
    decoding: DecodingSettings,
) -> RegionControl:
    """Generate a caption for the box of every object and compare its first object.

    Args:
        model: the captioner.
        reader: reader of the feature file.
        data: the split.
        captions: photo id -> caption of the whole photo.
        visible: photo id -> region that the encoder sees, in pixels of the photo;
            photos without an entry are ignored.
        decoding: decoding settings.
    """
    names = {item["name"] for photo in data.photos for item in photo.objects}
    requests = list(_requests(model.grid, data, captions, visible, names))
    hits: list[bool] = []
    for start in range(0, len(requests), decoding.batch_size):
        block = requests[start : start + decoding.batch_size]
        found = model.generate(
            reader.read([one.row for one in block]),
            decoding,
            seeds=[(decoding.seed, start + k) for k in range(len(block))],
            regions=np.stack([one.shares for one in block]),
        )
        for one, words in zip(block, best_words(model, found), strict=True):
            hits.append(first_name(words, names) == one.name)
    others = [
        hit
        for hit, one in zip(hits, requests, strict=True)
        if one.plain is not None and one.plain != one.name
    ]
    return RegionControl(_share(hits), _share(others))


def _requests(
    grid: tuple[int, int],
    data: Split,
    captions: Mapping[str, str],
    visible: Mapping[str, Box],
    names: Collection[str],
) -> Iterator[_Request]:
    """Yield a request for every object with a visible part."""
    for photo, row in zip(data.photos, data.rows, strict=True):
        if photo.id not in visible:
            continue
        plain = first_name(captions[photo.id].split(), names)
        for item in photo.objects:
            box = _in_map(item["box"], visible[photo.id])
            if box[0] < box[2] and box[1] < box[3]:
                shares = cell_shares(box, grid)
                yield _Request(int(row), item["name"], plain, shares)


def _in_map(box: Sequence[float], seen: Box) -> Box:
    """Map a box of the photo to fractions of the map, clipped to it."""
    x0, y0, x1, y1 = seen
    low, size = np.array([x0, y0] * 2), np.array([x1 - x0, y1 - y0] * 2)
    return tuple(np.clip((np.array(box) - low) / size, 0, 1).tolist())


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None
