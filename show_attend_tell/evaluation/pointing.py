"""Measure whether attention points at the objects that captions name.

This is the pointing game of Zhang et al., arXiv:1608.00507, without a tolerance. A
caption names an object if it contains the words of the object's name, such as "red
circle" or "man", one after the other. The attention that counts is alpha_t of the step
t that generated the last of these words, smoothed as figures and pages draw it. It hits
if the centre of the cell where it is largest is in a box of the object; its mass is its
sum over the cells whose centres are. Two controls do not look at the photo: a random
cell, and the centre of what the encoder sees. Boxes play no part in training.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import Box, load_photo, seen_region
from show_attend_tell.data.unicode_text import in_one_form
from show_attend_tell.evaluation.metrics.bootstrap import Statistic, ratio_statistic
from show_attend_tell.evaluation.metrics.reward import PEOPLE
from show_attend_tell.runtime.errors import EvaluationError, PhotoError, quote
from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes, reading

# The scores of a mention: hit, mass, and the controls of both.
SCORES = ("pointing", "pointing_mass", "pointing_random", "pointing_centre")
# What log p of the last word loses when as many locations are hidden as are inside the
# boxes: those, those with the most attention, or random ones.
HIDDEN = ("hidden_object", "hidden_attended", "hidden_random")


class Target(NamedTuple):
    """The named boxes of a photo.

    Attributes:
        boxes: words of a name -> its boxes (x0, y0, x1, y1) in pixels of the photo, x1
            and y1 exclusive. A point inside any of them is inside the object.
        region: the part of the photo that the map of attention covers, in pixels.
    """

    boxes: dict[tuple[str, ...], list[Box]]
    region: Box


class Mention(NamedTuple):
    """An object that a caption names, and the step t of the name's last word."""

    name: str
    step: int
    boxes: list[Box]


def find_targets(
    photos: Iterable[Photo],
    identity: Mapping[str, Any],
    people: Mapping[str, Sequence[Box]] | None = None,
) -> tuple[dict[str, Target], tuple[str, ...]]:
    """Return the targets of photos with boxes, and a note if some are unreadable.

    Args:
        photos: photos of the manifest; photos without boxes are ignored.
        identity: identity of the encoder, with ``image_size`` and ``resize``.
        people: photo id -> boxes of people, from :func:`read_boxes`; every word of
            :data:`PEOPLE` names them.

    Returns:
        Photo id -> target, and at most one note.
    """
    targets = {}
    errors = []
    for photo in photos:
        shares = (people or {}).get(photo.id, ())
        if not photo.objects and not shares:
            continue
        try:
            # Upright, that is after the EXIF orientation, as the boxes are.
            width, height = load_photo(photo.path).size
        except PhotoError as error:
            errors.append(error)
            continue
        boxes: dict[tuple[str, ...], list[Box]] = {}
        for item in photo.objects:
            boxes.setdefault(tuple(item["name"].split()), []).append(item["box"])
        if shares:
            scale = np.array([width, height] * 2)
            pixels = [tuple((scale * box).tolist()) for box in shares]
            boxes |= {(word,): pixels for word in PEOPLE}
        region = seen_region(
            (width, height), identity["image_size"], identity["resize"]
        )
        targets[photo.id] = Target(boxes, region)
    if not errors:
        return targets, ()
    effect = "pointing leaves out" if targets else "no pointing:"
    count = f"{len(errors)} photos that cannot be read"
    return targets, (f"{effect} {count}: {errors[0]}",)


def read_boxes(path: str | Path, photo_ids: Collection[str]) -> dict[str, list[Box]]:
    """Read the boxes of people from a JSON Lines file.

    A line is ``{"file": "a.jpg", "people": [[x0, y0, x1, y1], ...]}``; the numbers are
    shares, 0 to 1, of the photo's width and height after its EXIF orientation. Folders
    in `file` are ignored.

    Args:
        path: path of the file.
        photo_ids: ids of the photos; lines of other photos are ignored.

    Raises:
        EvaluationError: the file cannot be read, a line is malformed or repeats a
            photo, or no line is of these photos.
    """
    with reading(path, EvaluationError, "name a JSON Lines file of boxes"):
        # Not by splitlines: a file's name may contain U+2028, which it splits at.
        lines = read_text_bytes(path).decode("utf-8-sig").split("\n")
    boxes: dict[str, list[Box]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row: Any = parse_json(line)
        except ValueError:
            row = line
        # In NFC, as some file systems store names in NFD.
        name = in_one_form(Path(row["file"]).name) if _is_row(row) else None
        if name is None or name in boxes:
            raise EvaluationError(
                f"{path}, line {number}: must have `file`, a name that no other line "
                "has, and `people`, a list of boxes [x0, y0, x1, y1] in shares, "
                f"x0 < x1 and y0 < y1. Received: {quote(row)}"
            )
        people = row["people"]
        boxes[name] = [
            (float(x0), float(y0), float(x1), float(y1)) for x0, y0, x1, y1 in people
        ]
    names = {photo: in_one_form(Path(photo).name) for photo in photo_ids}
    known = {photo: boxes[name] for photo, name in names.items() if name in boxes}
    if not known:
        raise EvaluationError(
            f"{path}: must have boxes of photos of the split. Received: {len(boxes)} "
            "other photos; write the names of the photos' files as `file`"
        )
    return known


def _is_row(row: object) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("file"), str):
        return False
    people = row.get("people")
    return isinstance(people, list) and all(map(_is_box, people))


def _is_box(box: object) -> bool:
    return (
        isinstance(box, list)
        and len(box) == 4
        # By type(), as True and False are ints for isinstance.
        and all(type(x) in (int, float) and 0 <= x <= 1 for x in box)
        and box[0] < box[2]
        and box[1] < box[3]
    )


def find_mentions(words: Sequence[str], target: Target) -> list[Mention]:
    """Return the objects of a photo that a caption names, in order of mention."""
    return [
        Mention(" ".join(name), step, boxes)
        for step in range(len(words))
        for name, boxes in target.boxes.items()
        # A negative start would count from the end of the caption.
        if tuple(words[max(step + 1 - len(name), 0) : step + 1]) == name
    ]


def point(
    words: Sequence[str], alpha: np.ndarray, grid: tuple[int, int], target: Target
) -> np.ndarray:
    """Score the attention of every mention in a caption.

    Args:
        words: the caption, T words without special tokens.
        alpha: (..., T, L) attention weights, of one map or of several layers and
            heads; steps after the words are ignored.
        grid: rows and columns of the map; L is their product, in row-major order.
        target: the boxes of the photo.

    Returns:
        (..., M, 4), for each of the M mentions its :data:`SCORES`, 0 to 1.
    """
    mentions = find_mentions(words, target)
    x0, y0, x1, y1 = target.region
    middle = np.array([[(x0 + x1) / 2, (y0 + y1) / 2]])
    centres = cell_centres(grid, target.region)  # (L, 2)
    scores = np.zeros((*alpha.shape[:-2], len(mentions), len(SCORES)))
    for k, mention in enumerate(mentions):
        weights = alpha[..., mention.step, :]  # (..., L)
        inside = is_inside(mention.boxes, centres)  # (L,)
        scores[..., k, 0] = inside[weights.argmax(axis=-1)]
        scores[..., k, 1] = weights @ inside
        # The controls: the probability that a random cell hits, and the centre.
        scores[..., k, 2] = inside.mean()
        scores[..., k, 3] = is_inside(mention.boxes, middle)
    return scores


def cell_centres(grid: tuple[int, int], region: Box) -> np.ndarray:
    """Return x and y of the centre of every cell, (L, 2), in pixels of the photo."""
    rows, columns = grid
    x0, y0, x1, y1 = region
    x = x0 + (np.arange(columns) + 0.5) * (x1 - x0) / columns
    y = y0 + (np.arange(rows) + 0.5) * (y1 - y0) / rows
    # (rows, columns, 2) -> (L, 2), row by row as alpha
    return np.stack(np.meshgrid(x, y), axis=-1).reshape(rows * columns, 2)


def is_inside(boxes: Sequence[Box], points: np.ndarray) -> np.ndarray:
    """Return whether each of N points (N, 2) is inside any box, (N,) bool."""
    x, y = points.T
    # (boxes, N) -> (N,)
    return np.any(
        [(x0 <= x) & (x < x1) & (y0 <= y) & (y < y1) for x0, y0, x1, y1 in boxes],
        axis=0,
    )


def pointing_statistics(scores: Sequence[np.ndarray]) -> dict[str, Statistic]:
    """Return the statistic of each of :data:`SCORES` over all mentions.

    Args:
        scores: of each photo, (M, 4) from :func:`point`, or with :data:`HIDDEN` beside
            them (M, 7); every mention has the same weight.
    """
    sums = np.array([of_photo.sum(axis=0) for of_photo in scores])  # (N, 4 or 7)
    counts = [len(of_photo) for of_photo in scores]
    names = (*SCORES, *HIDDEN)[: sums.shape[1]]
    return {name: ratio_statistic(sums[:, k], counts) for k, name in enumerate(names)}
