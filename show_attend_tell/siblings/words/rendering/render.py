"""Render words as they look in photos, each with its own generator.

A word is chosen, drawn in a font as masks of ink, turned and cropped, painted, and
damaged as cameras and files do. The stages follow Jaderberg et al., "Synthetic Data and
Artificial Neural Networks for Natural Scene Text Recognition", 2014, arXiv:1406.2227.
The same arguments render the same bytes with the same versions of Pillow and NumPy.
"""

import hashlib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

from show_attend_tell.siblings.words.data import SPLITS, resize_crop
from show_attend_tell.siblings.words.rendering.fonts import Font, open_face
from show_attend_tell.siblings.words.rendering.word_list import WordList

Mask = Image.Image
Box = tuple[int, int, int, int]

VERSION = 3  # raise it when the same arguments render other bytes
_SIZES = (28, 32, 38, 44, 52, 60)  # of fonts, in pixels
_SLANTED = 0.20  # share of slanted fonts, where a family has one
LONGEST = 900  # pixels of a crop's side
_SHORTEST = 6
_MOST_SPACE = 0.30  # of a font's size, between letters
_STROKES = (0.60, 0.28, 0.12)  # shares of strokes of 0, 1 and 2 pixels
_SIDES = (0.2, 0.2, 0.3, 0.3)  # neighbours above, below, before and after the word
_STRIPS = 10  # of a curved word, each a parallelogram
_CONTRAST = 30.0  # least difference of grey levels between text and ground
_CONTRASTS = (1.8, 1.3)  # of the beta distribution of contrast: signs are easy to see
_LEAST_OUTLINE = 60.0  # grey levels between text and outline
_MOST_TEXTURE = 0.25  # of the contrast, so that text stays visible
_FROM_PHOTOS = 0.6  # share of textures, where there are photos


@dataclass(frozen=True)
class Renderer:
    """Renders words by number.

    Attributes:
        families: the fonts of each family; signs use all families equally often.
        words: the words.
        seed: seed of all words.
        photos: (H, W) uint8; textures are cut from them.
    """

    families: Mapping[str, Sequence[Font]]
    words: WordList
    seed: int = 0
    photos: Sequence[np.ndarray] = ()

    def render(self, split: str, number: int) -> tuple[np.ndarray, str]:
        """Render a word.

        Args:
            split: ``train`` or ``val``.
            number: number of the word in its split, from 0.

        Returns:
            The crop, (32, 100) uint8, and the word in small letters.
        """
        rng = np.random.default_rng([self.seed, SPLITS.index(split), number])
        word, text = self.words.sample(rng)
        families = [*self.families.values()]
        family = families[int(rng.integers(len(families)))]
        slanted = rng.random() < _SLANTED
        fonts = [font for font in family if font.slanted == slanted] or family
        font = fonts[int(rng.integers(len(fonts)))]
        sizes = [size for size in _SIZES if _fits(text, font, size)] or _SIZES[:1]
        face = open_face(font, sizes[int(rng.integers(len(sizes)))])
        layers, box = draw(text, face, rng, self.words.neighbour)
        picture = paint(crop(layers, box, rng), rng, self.photos)
        return resize_crop(damage(picture, rng)), word

    def digest(self) -> str:
        """Return a digest of everything that determines the bytes."""
        whole = hashlib.sha256()
        versions = VERSION, PIL.__version__, np.__version__
        whole.update(repr((versions, self.seed, self.words.digest)).encode())
        for name, fonts in self.families.items():
            for font in fonts:
                whole.update(repr((name, font.style, font.slanted)).encode())
                whole.update(hashlib.sha256(Path(font.path).read_bytes()).digest())
        for photo in self.photos:
            # With the shape: the same bytes in other rows are another photo.
            whole.update(repr(photo.shape).encode() + photo.tobytes())
        return whole.hexdigest()


def _fits(text: str, font: Font, size: int) -> bool:
    """Return whether a text with spaced letters is narrower than the widest crop."""
    space = _MOST_SPACE * size * (len(text) + 2)
    return open_face(font, size).getlength(text) + space < LONGEST


class Layers(NamedTuple):
    """Masks of one size, (H, W), each to be painted in a single grey level."""

    text: Mask  # the word and its neighbours
    shadow: Mask | None = None  # of the word
    outline: Mask | None = None  # the word and a line around it
    ruled: Mask | None = None  # a frame, or a line under the word

    def each(self, change: Callable[[Mask], Mask]) -> "Layers":
        """Return the masks after a change of each."""
        return Layers._make(None if mask is None else change(mask) for mask in self)


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
    size = int(face.size)
    space = size * rng.uniform(-0.05, _MOST_SPACE) if rng.random() < 0.45 else 0.0
    pieces, width = _spread(text, face, space)
    # A margin of `size` on each side holds strokes, curves, frames and shadows.
    high = sum(min(part, 2 * size) for part in face.getmetrics())
    shape = math.ceil(width) + 2 * size, high + 2 * size
    baseline = size + min(face.getmetrics()[0], 2 * size)
    stroke = int(rng.choice(len(_STROKES), p=_STROKES))

    def write(pieces: list, x: float, y: float, stroke: int = 0) -> Mask:
        mask = Image.new("L", shape)
        pen = ImageDraw.Draw(mask)
        for piece, start in pieces:
            place = size + x + start, baseline + y
            # "ls" is the left end of the baseline.
            pen.text(place, piece, 255, face, anchor="ls", stroke_width=stroke)
        return mask

    word = write(pieces, 0, 0, stroke)
    outline = None
    ruled = None
    shadow = None
    if rng.random() < 0.15:
        around = stroke + int(rng.integers(1, 2 + size // 14))
        outline = write(pieces, 0, 0, around)
    if rng.random() < 0.10 and width > 2 * size:
        rise = min(width * rng.uniform(0.03, 0.13), 0.9 * size) * rng.choice((-1, 1))
        word = curve(word, rise)
        outline = outline and curve(outline, rise)
    # Before neighbours are drawn into the mask: the crop is the word's.
    box = (outline or word).getbbox()
    assert box is not None  # every font has a glyph for each character of a word
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
    letters = []
    x = 0.0
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
    # Never by 0, where the letters would hide it. What leaves one side returns at the
    # other, but the margin is wider than the reach.
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
        x0, x1 = edges[k : k + 2]
        a, b = rises[k : k + 2]
        # The quadrilateral of the source: upper left, lower left, lower right, upper
        # right. A strip moves up because its source lies lower.
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
    cos = math.cos(angle)
    sin = math.sin(angle)
    # From offsets in the crop to offsets in the masks, from the middle of both.
    turn = np.array([[cos, -sin], [sin, cos]]) @ [[1.0, shear], [0.0, 1.0]]
    half = np.abs(np.linalg.inv(turn)) @ (x1 - x0, y1 - y0) / 2  # contains the word
    left, right = 2 * half[1] * rng.uniform(-0.03, 0.35, 2)
    above, below = 2 * half[1] * rng.uniform(-0.03, 0.30, 2)
    # In Pillow's order: upper left, lower left, lower right, upper right.
    x = np.array([-half[0] - left, -half[0] - left, half[0] + right, half[0] + right])
    y = np.array([-half[1] - above, half[1] + below, half[1] + below, -half[1] - above])
    size = (_side_of(x), _side_of(y))
    # One end of the word is farther away: the crop shows more of the masks there.
    wide, high = rng.uniform(-1.0, 1.0, 2) * (0.15, 0.25)
    wider = 1 + np.maximum(0, wide * np.sign(y))
    higher = 1 + np.maximum(0, high * np.sign(x))
    corners = turn @ (x * wider, y * higher) + [[(x0 + x1) / 2], [(y0 + y1) / 2]]
    quadrilateral = corners.T.ravel().tolist()

    def cropped(mask: Mask) -> Mask:
        return mask.transform(
            size, Image.Transform.QUAD, quadrilateral, Image.Resampling.BILINEAR
        )

    return layers.each(cropped)


def _side_of(corners: np.ndarray) -> int:
    """Return the side of a crop that shows corners on one axis, in pixels."""
    return int(np.clip(math.ceil(np.ptp(corners)), _SHORTEST, LONGEST))


def sample_levels(rng: np.random.Generator) -> tuple[float, float]:
    """Return the grey levels of ground and text."""
    apart = _CONTRAST + (255.0 - _CONTRAST) * rng.beta(*_CONTRASTS)
    dark = rng.uniform(0.0, 255.0 - apart)
    return (dark, dark + apart) if rng.random() < 0.5 else (dark + apart, dark)


def paint(
    layers: Layers, rng: np.random.Generator, photos: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """Return the picture of a cropped word, (H, W) float32 from 0 to 255.

    Args:
        layers: masks of the word.
        rng: the word's generator.
        photos: (H, W) uint8; textures of the ground may be cut from them.
    """
    width, height = layers.text.size
    ground, ink = sample_levels(rng)
    most = _MOST_TEXTURE * abs(ground - ink)
    # From back to front: ground, shadow, outline, frame, text.
    picture = ground + _texture((height, width), most, rng, photos)
    if layers.shadow is not None:
        level = max(0.0, ground - rng.uniform(30.0, 150.0))
        if abs(level - ink) < _CONTRAST:
            level = ground  # a shadow in the ink's level would thicken the letters
        picture = _blend(picture, layers.shadow, level, rng.uniform(0.4, 1.0))
    if layers.outline is not None:
        level = rng.uniform(0.0, 255.0 - 2 * _LEAST_OUTLINE)
        # Levels near the ink's are left out.
        level += 2 * _LEAST_OUTLINE * (level > ink - _LEAST_OUTLINE)
        picture = _blend(picture, layers.outline, level)
    if layers.ruled is not None:
        level = ink if rng.random() < 0.5 else rng.uniform(0.0, 255.0)
        picture = _blend(picture, layers.ruled, level)
    return np.clip(_blend(picture, layers.text, ink), 0.0, 255.0)


def _blend(
    picture: np.ndarray, mask: Mask, level: float, strength: float = 1.0
) -> np.ndarray:
    """Paint a level where the mask has ink."""
    ink = np.asarray(mask, np.float32) * (strength / 255.0)
    return picture + ink * (level - picture)


def _texture(
    shape: tuple[int, int],
    amplitude: float,
    rng: np.random.Generator,
    photos: Sequence[np.ndarray],
) -> np.ndarray:
    """Return a texture of mean 0 to add to the ground, (H, W) float32.

    The texture is a part of a photo, or noise in cells of any size: grain, wood, brick
    or uneven light. Its standard deviation is at most `amplitude`.
    """
    if photos and rng.random() < _FROM_PHOTOS:
        photo = photos[int(rng.integers(len(photos)))]
        # The whole photo on an axis where the crop is larger; it is resized below.
        sides = np.minimum(shape, photo.shape)
        y, x = rng.integers(np.array(photo.shape) - sides + 1)
        part = photo[y : y + sides[0], x : x + sides[1]].astype(np.float32)
    else:
        # Log-uniform, for rows and columns apart: from grain to stripes and uneven
        # light.
        cells = np.exp(rng.uniform(np.log(2.0), np.log(shape)))
        part = rng.standard_normal(np.maximum(2, shape / cells).astype(int), np.float32)
    image = Image.fromarray(part - part.mean())
    texture = np.asarray(image.resize(shape[::-1], Image.Resampling.BICUBIC))
    # The square makes faint textures more frequent.
    wanted = amplitude * rng.random() ** 2
    # A plain part of a photo has the deviation 0.
    return texture * (wanted / max(float(texture.std()), 1e-6))


def damage(picture: np.ndarray, rng: np.random.Generator) -> Image.Image:
    """Return a painted word, (H, W) from 0 to 255, degraded like a photo."""
    image = Image.fromarray(np.round(picture).astype(np.uint8))
    # The power makes small radii more frequent; the largest fits 32 rows.
    radius = 1.5 * rng.random() ** 3 * max(1.0, image.height / 32)
    image = image.filter(ImageFilter.GaussianBlur(radius))
    height = int(rng.integers(13, 70))  # of half of the pictures, fewer rows
    if height < min(image.height, 40):
        width = max(4, round(image.width * height / image.height))
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    deviation = np.float32(12.0 * rng.random() ** 3)
    grey = np.asarray(image, np.float32)
    grey = grey + deviation * rng.standard_normal(grey.shape, np.float32)
    image = Image.fromarray(np.clip(np.round(grey), 0, 255).astype(np.uint8))
    if rng.random() < 0.70:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(rng.integers(35, 95)))
        image = Image.open(file)
    return image
