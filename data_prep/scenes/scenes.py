"""Draw the data set that needs no download: scenes, their captions and boxes.

A scene has one, two or three shapes of different names. Exactly one caption describes
it: the shapes are named from the highest to the lowest, each with its relation to the
next,

    a red circle
    a red circle above a blue square
    a red circle left of a blue square above a green star

A shape is "above" the next if the vertical distance is at least twice the horizontal
one, and "left of" or "right of" it if the horizontal distance is at least 5/3 of the
vertical one. Neither names nor sizes determine the order: a model must use positions.

A fifth of the pairs of names never occurs in a training scene, so the held-out scenes
have unseen combinations. Every scene has its own generator, seeded with (0, split,
number): the same arguments write the same bytes with the same version of Pillow.
"""

import itertools
import math
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from data_prep.scenes.drawing import COLOURS, SHAPES, Shape, draw_shapes
from show_attend_tell.data.manifest import Photo

# Relation -> direction (x, y) from a shape to the next, and the range of the offset
# across that direction, downwards or to the right, as fractions of the distance along.
RELATIONS = {
    "above": ((0.0, 1.0), (-0.5, 0.5)),
    "left of": ((1.0, 0.0), (0.4, 0.6)),
    "right of": ((-1.0, 0.0), (0.4, 0.6)),
}
SIDE = 168  # pixels
COUNTS = {"train": 3000, "val": 200, "test": 500}  # scenes of each split
SPLITS = tuple(COUNTS)
_SEED = 0  # of all scenes

_SHAPES_IN_SCENE = (0.2, 0.5, 0.3)  # probability of one, two, three
_SIZES = (0.2, 0.3)  # fraction of the side
_GAP = 0.03  # minimum distance between two shapes, and to the edge
_QUALITY = 90  # of the JPEG files


def write_scenes(folder: Path, limit: int | None = None) -> list[Photo]:
    """Draw a data set of scenes and write them to ``folder``/photos.

    Args:
        folder: the folder of the manifest; made if absent.
        limit: maximum number of scenes of each split; all by default.

    Returns:
        One row per scene; paths are relative to ``folder``.
    """
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    photos = []
    for split, count in COUNTS.items():
        for number in range(count if limit is None else min(count, limit)):
            name = f"scene-{split}-{number:05d}"
            image, caption, objects = make_scene(split, number)
            path = folder / "photos" / f"{name}.jpg"
            image.save(path, quality=_QUALITY, subsampling=0)
            photos.append(
                Photo(
                    id=name,
                    path=Path("photos") / path.name,
                    split=split,
                    captions=(caption,),
                    objects=tuple(objects),
                )
            )
    return photos


def make_scene(split: str, number: int) -> tuple[Image.Image, str, list]:
    """Draw a scene.

    Args:
        split: one of :data:`SPLITS`; a training scene has no reserved pair.
        number: number of the scene in its split, from 0.

    Returns:
        The RGB picture, its caption, and its objects in the order of mention, each
        ``{"name": str, "box": [x0, y0, x1, y1]}`` in pixels.
    """
    # The order of the draws is part of the data set: another one changes every scene.
    generator = np.random.default_rng([_SEED, SPLITS.index(split), number])
    count = 1 + int(generator.choice(len(_SHAPES_IN_SCENE), p=_SHAPES_IN_SCENE))
    relations = list(generator.choice(list(RELATIONS), count - 1))
    shapes = _arrange(
        _choose_names(count, split == "train", generator), relations, generator
    )
    image, boxes = draw_shapes(shapes, SIDE, generator)
    objects = [
        {"name": shape.name, "box": list(box)}
        for shape, box in zip(shapes, boxes, strict=True)
    ]
    return image, compose_caption([shape.name for shape in shapes], relations), objects


def compose_caption(names: list[str], relations: list[str]) -> str:
    """Return the caption of a scene.

    Args:
        names: names of the shapes, the highest first.
        relations: relation of each shape to the next.
    """
    words = [f"a {names[0]}"]
    for relation, name in zip(relations, names[1:], strict=True):
        words.append(f"{relation} a {name}")
    return " ".join(words)


def is_reserved(first: str, second: str) -> bool:
    """Return whether two names occur together in held-out scenes only."""
    # hash() of a text differs between processes; a CRC-32 does not.
    return zlib.crc32(" ".join(sorted((first, second))).encode()) % 5 == 0


def _choose_names(
    count: int, training: bool, generator: np.random.Generator
) -> list[tuple[str, str]]:
    """Sample different (colour, kind) pairs; no reserved pair if ``training``."""
    every = list(itertools.product(COLOURS, SHAPES))
    while True:
        chosen = generator.choice(len(every), size=count, replace=False)
        names = [every[index] for index in chosen]
        pairs = itertools.combinations([" ".join(name) for name in names], 2)
        if not (training and any(is_reserved(a, b) for a, b in pairs)):
            return names


def _arrange(
    names: list[tuple[str, str]], relations: list[str], generator: np.random.Generator
) -> list[Shape]:
    """Sample positions and sizes until the relations hold and no shapes touch."""
    while True:
        shapes = []
        for index, (colour, kind) in enumerate(names):
            size = generator.uniform(*_SIZES)
            if index:
                x, y = _after(shapes[-1], size, relations[index - 1], generator)
            else:
                x, y = generator.uniform(size / 2.0, 1.0 - size / 2.0, 2)
            shapes.append(Shape(colour, kind, x, y, size))
        if _fits(shapes):
            return shapes


def _after(
    last: Shape, size: float, relation: str, generator: np.random.Generator
) -> tuple[float, float]:
    """Sample a centre (x, y) that the last shape has the relation to."""
    (across, down), off_axis = RELATIONS[relation]
    nearest = (last.size + size) / 2.0 + _GAP
    along = generator.uniform(nearest, 2.0 * nearest)
    aside = along * generator.uniform(*off_axis)
    # The offset across "above" is to the right, across the others downwards.
    return (
        last.x + across * along + down * aside,
        last.y + down * along + abs(across) * aside,
    )


def _fits(shapes: list[Shape]) -> bool:
    """Return whether all shapes are inside the picture and apart from each other."""
    inside = all(
        shape.size / 2.0 + _GAP <= value <= 1.0 - shape.size / 2.0 - _GAP
        for shape in shapes
        for value in (shape.x, shape.y)
    )
    apart = all(
        math.hypot(a.x - b.x, a.y - b.y) >= (a.size + b.size) / 2.0 + _GAP
        for a, b in itertools.combinations(shapes, 2)
    )
    return inside and apart
