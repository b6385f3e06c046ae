"""Draw a word as masks of ink, then turn and crop them as photos of words are.

The stages follow Jaderberg et al., "Synthetic Data and Artificial Neural Networks for
Natural Scene Text Recognition", 2014, arXiv:1406.2227.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

Mask = Image.Image
Box = tuple[int, int, int, int]

LONGEST = 900  # pixels of a crop's side
_SHORTEST = 6
MOST_SPACE = 0.30  # of a font's size, between letters
_STROKES = (0.60, 0.28, 0.12)  # shares of strokes of 0, 1 and 2 pixels
_SIDES = (0.2, 0.2, 0.3, 0.3)  # neighbours above, below, before and after the word
_STRIPS = 10  # of a curved word, each a parallelogram


class Layers(NamedTuple):
    """Masks of one size, (H, W), each to be painted in a single grey level.

    Attributes:
        text: the word and its neighbours.
        shadow: shadow of the word.
        outline: the word and a line around it.
        ruled: a frame, or a line under the word.
    """

    text: Mask
    shadow: Mask | None = None
    outline: Mask | None = None
    ruled: Mask | None = None


def draw(
    text: str,
    face: ImageFont.FreeTypeFont,
    rng: np.random.Generator,
    neighbour: Callable[[np.random.Generator], str],
) -> tuple[Layers, Box]:
    """Draw a word.

    Args:
        text: the text to draw.
        face: its font.
        rng: the word's generator.
        neighbour: returns the text of another word.

    Returns:
        The masks, and the box (x0, y0, x1, y1) of the word's ink without neighbours.
    """
    size = face.size
    space = size * rng.uniform(-0.05, MOST_SPACE) if rng.random() < 0.45 else 0.0
    pieces, width = _spread(text, face, space)
    high = sum(min(part, 2 * size) for part in face.getmetrics())
    shape = math.ceil(width) + 2 * size, high + 2 * size
    baseline = size + min(face.getmetrics()[0], 2 * size)
    stroke = int(rng.choice(len(_STROKES), p=_STROKES))

    def write(pieces: list, x: float, y: float, stroke: int = 0) -> Mask:
        mask = Image.new("L", shape)
        pen = ImageDraw.Draw(mask)
        for piece, start in pieces:
            place = size + x + start, baseline + y
            pen.text(place, piece, 255, face, anchor="ls", stroke_width=stroke)
        return mask

    word, outline, ruled, shadow = write(pieces, 0, 0, stroke), None, None, None
    if rng.random() < 0.15:
        around = stroke + int(rng.integers(1, 2 + size // 14))
        outline = write(pieces, 0, 0, around)
    if rng.random() < 0.10 and width > 2 * size:
        rise = min(width * rng.uniform(0.03, 0.13), 0.9 * size) * rng.choice((-1, 1))
        word, outline = curve(word, rise), outline and curve(outline, rise)
    box = (outline or word).getbbox()
    if rng.random() < 0.15:
        ruled = _ruled(shape, box, size, rng)
    if rng.random() < 0.20:
        shadow = _shadow(word, size, rng)
    if rng.random() < 0.30:
        beside = neighbour(rng)
        word = ImageChops.lighter(
            word, write([(beside, 0.0)], *_place_beside(beside, face, width, rng))
        )
    return Layers(word, shadow, outline, ruled), box


def _spread(
    text: str, face: ImageFont.FreeTypeFont, space: float
) -> tuple[list[tuple[str, float]], float]:
    """Return the letters of a text with the x of each, and the width of all.

    Without extra space the text is a single piece, with the kerning of its font.
    """
    if not space:
        return [(text, 0.0)], face.getlength(text)
    letters, x = [], 0.0
    for letter in text:
        letters.append((letter, x))
        x += max(1.0, face.getlength(letter) + space)
    return letters, x


def _place_beside(
    text: str, face: ImageFont.FreeTypeFont, width: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the offset (x, y) of a neighbour from the word's place."""
    space = face.size * rng.uniform(0.12, 0.4)
    lines = face.size * rng.uniform(0.85, 1.25)
    along = rng.uniform(-0.5, 0.5) * width
    before = -face.getlength(text) - space
    places = (along, -lines), (along, lines), (before, 0.0), (width + space, 0.0)
    return places[rng.choice(4, p=_SIDES)]


def _shadow(mask: Mask, size: int, rng: np.random.Generator) -> Mask:
    """Return the mask, shifted by a few pixels and blurred."""
    reach = max(1, size // 10)
    x, y = (int(rng.integers(-reach, reach + 1)) for _ in range(2))
    moved = ImageChops.offset(mask, x or 1, y or 1)
    return moved.filter(ImageFilter.GaussianBlur(rng.uniform(0.0, size / 20)))


def _ruled(
    shape: tuple[int, int], box: Box, size: int, rng: np.random.Generator
) -> Mask:
    """Return a mask of a frame around the word, or of a line under it."""
    mask = Image.new("L", shape)
    pen = ImageDraw.Draw(mask)
    x0, y0, x1, y1 = box
    width = int(rng.integers(1, 2 + size // 12))
    air = width + int(size * rng.uniform(0.03, 0.25))
    if rng.random() < 0.5:
        pen.rectangle([x0 - air, y0 - air, x1 + air, y1 + air], 0, 255, width)
    else:
        y = y1 + air // 2
        pen.line([x0 - air, y, x1 + air, y], 255, width)
    return mask


def curve(mask: Mask, rise: float) -> Mask:
    """Move the middle of a mask up by `rise` pixels, its sides less, on a parabola."""
    width, height = mask.size
    edges = np.linspace(0, width, _STRIPS + 1).round().astype(int).tolist()
    rises = [rise * (1 - (2 * x / width - 1) ** 2) for x in edges]
    mesh = []
    for k in range(_STRIPS):
        (x0, x1), (a, b) = edges[k : k + 2], rises[k : k + 2]
        mesh.append(
            ((x0, 0, x1, height), (x0, a, x0, height + a, x1, height + b, x1, b))
        )
    return mask.transform(
        mask.size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR
    )


def crop(layers: Layers, box: Box, rng: np.random.Generator) -> Layers:
    """Crop the masks to the word, turned, sheared and in perspective.

    The crop shows a quadrilateral of the masks. Its margins may be negative and cut
    letters.
    """
    x0, y0, x1, y1 = box
    angle, shear = rng.normal(0.0, (math.radians(3.0), 0.08))
    cos, sin = math.cos(angle), math.sin(angle)
    # From offsets in the crop to offsets in the masks, from the middle of both.
    turn = np.array([[cos, -sin], [sin, cos]]) @ [[1.0, shear], [0.0, 1.0]]
    half = np.abs(np.linalg.inv(turn)) @ (x1 - x0, y1 - y0) / 2  # contains the word
    left, right = 2 * half[1] * rng.uniform(-0.03, 0.35, 2)
    above, below = 2 * half[1] * rng.uniform(-0.03, 0.30, 2)
    x = np.array([-half[0] - left, -half[0] - left, half[0] + right, half[0] + right])
    y = np.array([-half[1] - above, half[1] + below, half[1] + below, -half[1] - above])
    shape = [
        int(np.clip(math.ceil(v.max() - v.min()), _SHORTEST, LONGEST)) for v in (x, y)
    ]
    # One end of the word is farther away: the crop shows more of the masks there.
    wide, high = rng.uniform(-1.0, 1.0, 2) * (0.15, 0.25)
    x, y = (
        x * (1 + np.maximum(0, wide * np.sign(y))),
        y * (1 + np.maximum(0, high * np.sign(x))),
    )
    corners = turn @ (x, y) + [[(x0 + x1) / 2], [(y0 + y1) / 2]]
    kind, how = Image.Transform.QUAD, Image.Resampling.BILINEAR
    data = corners.T.ravel().tolist()
    return Layers(*(mask and mask.transform(shape, kind, data, how) for mask in layers))
