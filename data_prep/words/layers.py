"""Draw a word as layers: masks of ink, each to be painted in a single grey level.

All masks of a word have the same size, (H, W), with space around the word for its
neighbours and for rotation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from data_prep.words.effects import Effects
from data_prep.words.fonts import Font, open_face

Mask = Image.Image
Box = tuple[int, int, int, int]
Shape = tuple[int, int]  # width and height
Pieces = list[tuple[str, float, int]]  # text, x of its start, size of its font

_SIDES = (0.2, 0.2, 0.3, 0.3)  # neighbours above, below, before and after the word
_SMALL = 0.8  # size of small capitals
_HEAVY = (1 / 26, 1 / 15)  # strokes of heavy letters, as shares of the size


@dataclass(frozen=True)
class Layers:
    """The masks of a word; all but the text are optional.

    Attributes:
        text: the word and its neighbours.
        box: x0, y0, x1, y1 of the word's ink, without neighbours.
        shadow: shadow of the text.
        outline: the text and a line around it.
        ruled: a frame, or a line under the word.
        board: the ground under the word, where it ends near the word.
        hollow: whether the text has the ground's level.
    """

    text: Mask
    box: Box
    shadow: Mask | None = None
    outline: Mask | None = None
    ruled: Mask | None = None
    board: Mask | None = None
    hollow: bool = False


def draw_layers(
    text: str,
    font: Font,
    size: int,
    rng: np.random.Generator,
    effects: Effects,
    neighbour: Callable[[np.random.Generator], str],
) -> Layers:
    """Draw the layers of a word.

    Args:
        text: the text to draw.
        font: its font.
        size: size of the font, in pixels.
        rng: the word's generator.
        effects: probabilities and ranges of the effects.
        neighbour: returns the text of another word.
    """
    pieces, width = _spread(text, font, size, rng, effects)
    stroke = int(rng.choice(3, p=effects.strokes))
    if rng.random() < effects.heavy:
        stroke = max(2, round(size * rng.uniform(*_HEAVY)))
    pen = _Pen(font, size, math.ceil(width))
    mask = pen.write(pieces, stroke=stroke)
    box = mask.getbbox()
    word, extra = mask, {}
    if rng.random() < effects.outline:
        around = stroke + int(rng.integers(1, 2 + size // 14))
        extra["outline"] = pen.write(pieces, stroke=around)
        box = extra["outline"].getbbox()
        extra["hollow"] = rng.random() < effects.hollow
    if rng.random() < effects.ruled:
        extra["ruled"] = _ruled(mask.size, box, size, rng)
    if rng.random() < effects.board:
        extra["board"] = _board(mask.size, box, size, rng)
    if rng.random() < effects.neighbours:
        mask = ImageChops.lighter(mask, _neighbours(pen, neighbour, rng))
    if rng.random() < effects.shadow:
        extra["shadow"] = _shadow(word, size, rng)
    return Layers(text=mask, box=box, **extra)


@dataclass(frozen=True)
class _Pen:
    """Writes text on masks; the word starts `size` pixels from the edges."""

    font: Font
    size: int
    width: int  # of the word

    def write(
        self, pieces: Pieces, x: float = 0.0, y: float = 0.0, stroke: int = 0
    ) -> Mask:
        """Return a mask of text at the offset (x, y) from the word's place."""
        ascent, descent = open_face(self.font, self.size).getmetrics()
        ascent, descent = (min(part, 2 * self.size) for part in (ascent, descent))
        shape = self.width + 2 * self.size, ascent + descent + 2 * self.size
        mask = Image.new("L", shape)
        draw = ImageDraw.Draw(mask)
        baseline = self.size + ascent + y
        for text, start, size in pieces:
            face = open_face(self.font, size)
            place = self.size + x + start, baseline
            draw.text(place, text, 255, face, anchor="ls", stroke_width=stroke)
        return mask


def _spread(
    text: str, font: Font, size: int, rng: np.random.Generator, effects: Effects
) -> tuple[Pieces, float]:
    """Return the pieces of a text and its width; spaced letters are pieces.

    A text that is a single piece has the kerning of its font.
    """
    spaced = rng.random() < effects.spaced
    small_caps = rng.random() < effects.small_caps and text.isupper() and len(text) > 1
    face = open_face(font, size)
    if not spaced and not small_caps:
        return [(text, 0.0, size)], face.getlength(text)
    space = size * rng.uniform(*effects.spacing) if spaced else 0.0
    small = round(size * _SMALL)
    pieces, x = [], 0.0
    for position, letter in enumerate(text):
        letter_size = small if small_caps and position else size
        pieces.append((letter, x, letter_size))
        x += max(1.0, open_face(font, letter_size).getlength(letter) + space)
    return pieces, x


def _neighbours(pen: _Pen, neighbour: Callable, rng: np.random.Generator) -> Mask:
    """Return a mask of words above, below or beside the word."""
    side = rng.choice(4, p=_SIDES)
    text = neighbour(rng)
    length = open_face(pen.font, pen.size).getlength(text)
    space = pen.size * rng.uniform(0.12, 0.4)
    lines = pen.size * rng.uniform(0.85, 1.25)
    along = rng.uniform(-0.5, 0.5) * pen.width
    x, y = [
        (along, -lines),
        (along, lines),
        (-length - space, 0.0),
        (pen.width + space, 0.0),
    ][side]
    return pen.write([(text, 0.0, pen.size)], x, y)


def _shadow(mask: Mask, size: int, rng: np.random.Generator) -> Mask:
    """Return the mask, shifted by a few pixels and blurred."""
    reach = max(1, size // 10)
    x, y = (int(rng.integers(-reach, reach + 1)) for _ in range(2))
    moved = ImageChops.offset(mask, x or 1, y or 1)
    return moved.filter(ImageFilter.GaussianBlur(rng.uniform(0.0, size / 20)))


def _ruled(shape: Shape, box: Box, size: int, rng: np.random.Generator) -> Mask:
    """Return a mask of a frame around the word, or of a line under it."""
    mask = Image.new("L", shape)
    draw = ImageDraw.Draw(mask)
    x0, y0, x1, y1 = box
    width = int(rng.integers(1, 2 + size // 12))
    air = width + int(size * rng.uniform(0.03, 0.25))
    if rng.random() < 0.5:
        draw.rectangle([x0 - air, y0 - air, x1 + air, y1 + air], 0, 255, width)
    else:
        y = y1 + air // 2
        draw.line([x0 - air, y, x1 + air, y], 255, width)
    return mask


def _board(shape: Shape, box: Box, size: int, rng: np.random.Generator) -> Mask:
    """Return a mask of a rectangle around the word; two of its sides are near."""
    air = size * rng.uniform(0.03, 0.2, 4)
    air[rng.permutation(4)[:2]] = 2 * max(shape)
    x0, y0, x1, y1 = box
    mask = Image.new("L", shape)
    corners = [x0 - air[0], y0 - air[1], x1 + air[2], y1 + air[3]]
    ImageDraw.Draw(mask).rectangle(corners, 255)
    return mask
