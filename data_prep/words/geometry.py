"""Place the layers of a word in a crop: on an arc, turned, sheared, in perspective."""

import dataclasses
import itertools
import math

import numpy as np
from PIL import Image

from data_prep.words.effects import Effects
from data_prep.words.layers import Box, Layers, Mask

_MASKS = ("text", "shadow", "outline", "ruled", "board")
_STRIPS = 10  # of an arc, each a trapezoid
LONGEST = 900  # pixels of a crop's side
_SHORTEST = 6


def place(layers: Layers, rng: np.random.Generator, effects: Effects) -> Layers:
    """Return the layers in a crop around the word; ``box`` is the whole crop."""
    if rng.random() < effects.arc and _is_long(layers.box):
        layers = _on_an_arc(layers, rng, effects)
    forward = _homography(layers.box, rng, effects)
    x0, y0, x1, y1 = _bounds(forward, layers.box)
    high = y1 - y0
    left, right = high * rng.uniform(*effects.margin_x, size=2)
    above, below = high * rng.uniform(*effects.margin_y, size=2)
    x0, y0, x1, y1 = x0 - left, y0 - above, x1 + right, y1 + below
    shape = tuple(
        int(np.clip(math.ceil(side), _SHORTEST, LONGEST)) for side in (x1 - x0, y1 - y0)
    )
    shift = np.array([[1.0, 0.0, x0], [0.0, 1.0, y0], [0.0, 0.0, 1.0]])
    # Pillow maps pixels of the crop to pixels of the source.
    backward = np.linalg.inv(forward) @ shift
    data = tuple((backward / backward[2, 2]).ravel()[:8])
    kind, how = Image.Transform.PERSPECTIVE, Image.Resampling.BILINEAR
    if np.allclose(data, np.round(data)):  # every pixel maps to a pixel
        how = Image.Resampling.NEAREST
    return _changed(
        layers,
        (0, 0, *shape),
        lambda mask: mask.transform(shape, kind, data, how),
    )


def _is_long(box: Box) -> bool:
    """Return whether a word is long enough for an arc."""
    x0, y0, x1, y1 = box
    return x1 - x0 >= 2 * (y1 - y0)


def _changed(layers: Layers, box: Box, change) -> Layers:
    """Return the layers with another box, after changing each mask."""
    masks = {name: getattr(layers, name) for name in _MASKS}
    masks = {name: change(mask) for name, mask in masks.items() if mask is not None}
    return dataclasses.replace(layers, box=box, **masks)


def _homography(box: Box, rng: np.random.Generator, effects: Effects) -> np.ndarray:
    """Return the (3, 3) matrix from pixels of the mask to pixels of the picture.

    The middle of the box stays in place.
    """
    x0, y0, x1, y1 = box
    angle = math.radians(rng.normal(0.0, 1.0) * effects.rotation)
    if rng.random() < effects.turned:
        angle = math.radians(rng.uniform(-1.0, 1.0) * effects.most_turned)
    shear = rng.normal(0.0, 1.0) * effects.shear
    if rng.random() < effects.leaning:
        shear = -rng.uniform(*effects.lean)  # y grows downwards
    wide, high = rng.uniform(-1.0, 1.0, 2) * effects.perspective
    cos, sin = math.cos(angle), math.sin(angle)
    turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    lean = np.array([[1.0, shear, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    # One end of the word is lower than the middle by `high`, the other end higher.
    far = np.eye(3)
    far[2, :2] = 2 * high / max(x1 - x0, 1), 2 * wide / max(y1 - y0, 1)
    middle = np.eye(3)
    middle[:2, 2] = (x0 + x1) / 2, (y0 + y1) / 2
    back = np.eye(3)
    back[:2, 2] = -middle[:2, 2]
    return middle @ far @ turn @ lean @ back


def _bounds(forward: np.ndarray, box: Box) -> tuple[float, float, float, float]:
    """Return the bounding box of a box's transformed corners."""
    x0, y0, x1, y1 = box
    corners = np.array([[x0, x1, x1, x0], [y0, y0, y1, y1], [1.0] * 4])
    x, y, scale = forward @ corners
    x, y = x / scale, y / scale
    return x.min(), y.min(), x.max(), y.max()


def _on_an_arc(layers: Layers, rng: np.random.Generator, effects: Effects) -> Layers:
    """Bend the layers so that the word is on an arc, upwards or downwards.

    For an arc of radius R, the pixel at angle t from the arc's middle and distance r
    from its centre shows the mask at x = t R and y = R - r.
    """
    x0, y0, x1, y1 = layers.box
    bend = math.radians(rng.uniform(*effects.bend))
    up = 1.0 if rng.random() < 0.7 else -1.0
    width, height = layers.text.size
    # The arc's centre must be outside of the mask, which would be folded there.
    radius = max((x1 - x0) / bend, 0.75 * height)
    sag = math.ceil(radius * (1 - math.cos(min((x1 - x0) / radius / 2, math.pi / 2))))
    high = height + sag
    middle_x, middle_y = (x0 + x1) / 2, (y0 + y1) / 2
    edges = [round(width * k / _STRIPS) for k in range(_STRIPS + 1)]

    def source(x: float, y: float) -> tuple[float, float]:
        """Return the point of the mask that a point of the picture shows."""
        across = x - middle_x
        along = radius + up * (middle_y + (sag if up < 0 else 0) - y)
        turned = math.atan2(across, max(along, 1.0))
        distance = math.hypot(across, max(along, 1.0))
        return middle_x + turned * radius, middle_y - up * (distance - radius)

    # Pillow maps a quadrilateral linearly, so the word's must not be higher than it.
    rows = (0, max(0, y0 - 2), min(high, y1 + sag + 2), high)
    mesh = []
    for left, right in itertools.pairwise(edges):
        for top, bottom in itertools.pairwise(rows):
            corners = ((left, top), (left, bottom), (right, bottom), (right, top))
            quad = tuple(value for corner in corners for value in source(*corner))
            mesh.append(((left, top, right, bottom), quad))

    def bent(mask: Mask) -> Mask:
        kind, how = Image.Transform.MESH, Image.Resampling.BILINEAR
        return mask.transform((width, high), kind, mesh, how)

    # The box of the bent word excludes the ink of its neighbours.
    alone = Image.new("L", layers.text.size)
    alone.paste(layers.text.crop(layers.box), layers.box)
    box = bent(alone).getbbox() or layers.box
    return _changed(layers, box, bent)
