"""Draw coloured shapes on textured backgrounds, with Pillow and NumPy.

A picture depends on a list of :class:`Shape` and a seeded generator only: the same
arguments give the same pixels.
"""

import colorsys
import math
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

# Hue of each colour as a fraction of the colour circle, in the order of the circle.
COLOURS = {
    "red": 0.0,
    "yellow": 0.15,
    "green": 0.34,
    "cyan": 0.5,
    "blue": 0.63,
    "purple": 0.79,
}
SHAPES = ("circle", "square", "triangle", "star", "cross")

_HUE_JITTER = 0.015  # small compared with the 0.13 between cyan and blue
_TILT = 10.0  # degrees, at most, in both directions
_SUPERSAMPLING = 3


class Shape(NamedTuple):
    """One coloured shape; lengths are fractions of the picture's side."""

    colour: str
    kind: str
    x: float  # of the centre, from the left
    y: float  # of the centre, from the top
    size: float  # diameter of the circumscribed circle

    @property
    def name(self) -> str:
        """The noun phrase of the shape, such as "red circle"."""
        return f"{self.colour} {self.kind}"


def draw_shapes(
    shapes: list[Shape], side: int, generator: np.random.Generator
) -> tuple[Image.Image, list[tuple[int, int, int, int]]]:
    """Draw shapes on a textured background.

    Args:
        shapes: the shapes in drawing order.
        side: width and height of the picture in pixels.
        generator: random generator of the texture, tints and tilts.

    Returns:
        The RGB picture, and for each shape its bounding box ``(x0, y0, x1, y1)`` in
        pixels, x1 and y1 exclusive.
    """
    pixels = _background(side, generator)
    boxes = []
    for shape in shapes:
        mask = _mask(shape, side, generator.uniform(-_TILT, _TILT))
        # The smallest box around every pixel that is covered, even in part.
        box = Image.fromarray(mask).getbbox()
        assert box is not None, "a shape covers a pixel"
        shade = 1.0 + 0.06 * _smooth_noise(side, 6, generator)
        colours = shade[:, :, None] * _tint(shape.colour, generator)  # (S, S, 3)
        window = np.s_[box[1] : box[3], box[0] : box[2]]
        cover = mask[window][:, :, None]  # (h, w) -> (h, w, 1)
        # Colour over ground, by the share of each pixel that the shape covers.
        pixels[window] += cover * (colours[window] - pixels[window])
        boxes.append(box)
    # The same noise in all three channels: it has no colour.
    pixels += 0.015 * generator.standard_normal((side, side, 1), dtype=np.float32)
    values = np.rint(np.clip(pixels, 0.0, 1.0) * 255.0).astype(np.uint8)
    return Image.fromarray(values), boxes


def _tint(colour: str, generator: np.random.Generator) -> np.ndarray:
    hue = (COLOURS[colour] + generator.uniform(-_HUE_JITTER, _HUE_JITTER)) % 1.0
    saturation = generator.uniform(0.8, 1.0)
    value = generator.uniform(0.7, 1.0)
    return np.array(colorsys.hsv_to_rgb(hue, saturation, value), np.float32)


def _grey(
    darkest: float, brightest: float, generator: np.random.Generator
) -> np.ndarray:
    """Return a nearly grey colour of a brightness in a range."""
    hue = generator.uniform()
    saturation = generator.uniform(0.0, 0.2)
    value = generator.uniform(darkest, brightest)
    return np.array(colorsys.hsv_to_rgb(hue, saturation, value), np.float32)


def _background(side: int, generator: np.random.Generator) -> np.ndarray:
    """Return a nearly grey texture (side, side, 3)."""
    low = _grey(0.2, 0.5, generator)
    high = _grey(0.5, 0.9, generator)
    pattern = _TEXTURES[generator.integers(len(_TEXTURES))](side, generator)
    pattern = pattern + 0.15 * _smooth_noise(side, 12, generator)
    blend = np.clip(0.5 + generator.uniform(0.25, 0.5) * pattern, 0.0, 1.0)
    return low + (high - low) * blend[:, :, None]


def _smooth_noise(side: int, cells: int, generator: np.random.Generator) -> np.ndarray:
    """Return noise (side, side) within -1..1, smooth over side / cells pixels."""
    coarse = generator.uniform(-1.0, 1.0, (cells, cells)).astype(np.float32)
    image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(image)


def _positions(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x (1, side) and y (side, 1) of the pixels as fractions of the side."""
    x = np.arange(side, dtype=np.float32)[None, :] / side
    return x, x.T


def _clouds(side: int, generator: np.random.Generator) -> np.ndarray:
    return _smooth_noise(side, int(generator.integers(3, 9)), generator)


def _stripes(side: int, generator: np.random.Generator) -> np.ndarray:
    x, y = _positions(side)
    angle = generator.uniform(0.0, math.pi)
    waves = generator.uniform(3.0, 12.0)
    distance = x * math.cos(angle) + y * math.sin(angle)
    return np.sin(2.0 * math.pi * waves * distance)


def _checks(side: int, generator: np.random.Generator) -> np.ndarray:
    x, y = _positions(side)
    waves = generator.uniform(2.0, 8.0)
    return np.sign(
        np.sin(2.0 * math.pi * waves * x) * np.sin(2.0 * math.pi * waves * y)
    )


_TEXTURES = (_clouds, _stripes, _checks)


def _mask(shape: Shape, side: int, tilt: float) -> np.ndarray:
    """Compute the share of each pixel that the shape covers, (side, side), 0..1."""
    # Drawn larger and then averaged, as Pillow's polygons have no smooth edges.
    large = side * _SUPERSAMPLING
    canvas = Image.new("L", (large, large))
    x = shape.x * large
    y = shape.y * large
    radius = shape.size * large / 2.0
    corners = [
        (
            x + radius * reach * math.sin(math.radians(angle + tilt)),
            y - radius * reach * math.cos(math.radians(angle + tilt)),
        )
        for angle, reach in _OUTLINES[shape.kind]
    ]
    ImageDraw.Draw(canvas).polygon(corners, fill=255)
    return np.asarray(canvas.reduce(_SUPERSAMPLING), dtype=np.float32) / 255.0


def _cross_outline() -> list[tuple[float, float]]:
    """Return a plus sign with arms of 0.36 of its height in width."""
    reach = math.hypot(0.36, 1.0)
    half_width = math.degrees(math.atan(0.36))
    corners = []
    for arm in (0.0, 90.0, 180.0, 270.0):
        corners += [(arm - half_width, 1.0), (arm + half_width, 1.0)]
        corners += [(arm + 45.0, 0.36 * math.sqrt(2.0) / reach)]
    return corners


# Corners as (degrees clockwise from the top, distance from the centre in radii).
_OUTLINES = {
    "circle": [(5.0 * i, 0.9) for i in range(72)],
    "square": [(angle, 1.0) for angle in (45.0, 135.0, 225.0, 315.0)],
    "triangle": [(angle, 1.0) for angle in (0.0, 120.0, 240.0)],
    "star": [(36.0 * i, 0.42 if i % 2 else 1.0) for i in range(10)],
    "cross": _cross_outline(),
}
