"""Render words as they look in photos, each with its own generator.

A word is chosen, drawn in a font, placed in a crop, painted and damaged. The same
arguments render the same bytes with the same versions of Pillow and NumPy.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageDraw

from data_prep.words.effects import Effects
from data_prep.words.fonts import Family, Font, open_face
from data_prep.words.geometry import LONGEST, place
from data_prep.words.layers import Layers, draw_layers
from data_prep.words.paint import damage, paint
from data_prep.words.word_list import WordList, sample_index
from show_attend_tell.data.words import SPLITS, resize_crop

VERSION = 2  # raise it when the same arguments render other bytes
_SIZES = (28, 32, 38, 44, 52, 60)  # of fonts, in pixels
_TRIES = 10  # of words that have no ink in a font
_SPACE = 0.35  # of a font's size between letters, at most, and room at both ends


@dataclass(frozen=True)
class Renderer:
    """Renders words by number.

    Attributes:
        families: the fonts; a family is chosen in proportion to the square root of its
            number of fonts, because signs are often set in families of many weights.
        words: the words.
        seed: seed of all words.
        photos: (H, W) uint8; grounds are cut from them.
        effects: probabilities and ranges of the effects on words.
    """

    families: Sequence[Family]
    words: WordList
    seed: int = 0
    photos: Sequence[np.ndarray] = ()
    effects: Effects = Effects()

    def render(self, split: str, number: int) -> tuple[np.ndarray, str]:
        """Render a word.

        Args:
            split: ``train`` or ``val``.
            number: number of the word in its split, from 0.

        Returns:
            The crop, (32, 100) uint8, and the word in small letters.
        """
        rng = np.random.default_rng([self.seed, SPLITS.index(split), number])
        layers, word = self._draw(rng)
        layers = place(layers, rng, self.effects)
        picture = paint(layers, rng, self.effects, self.photos)
        return resize_crop(damage(picture, rng, self.effects)), word

    @functools.cached_property
    def _shares(self) -> np.ndarray:
        return np.cumsum([len(family.fonts) ** 0.5 for family in self.families])

    def _draw(self, rng: np.random.Generator) -> tuple[Layers, str]:
        """Draw a word in a font; choose another word if it leaves no ink."""
        for _ in range(_TRIES):
            shown = self.words.sample(rng)
            family = self.families[sample_index(self._shares, rng)]
            font = family.choose(rng.random() < self.effects.slanted, rng.random())
            text = shown.text if font.punctuation else shown.plain()
            sizes = [size for size in _SIZES if _fits(text, font, size)] or _SIZES[:1]
            size = sizes[rng.integers(len(sizes))]
            layers = draw_layers(
                text, font, size, rng, self.effects, self.words.neighbour
            )
            if layers.box is not None:
                return layers, shown.word
        raise RuntimeError(f"no ink in {_TRIES} words")

    def digest(self) -> str:
        """Return a digest of everything that determines the bytes."""
        fonts = [
            (
                family.name,
                hashlib.sha256(Path(font.path).read_bytes()).hexdigest(),
                font.axes,
            )
            for family in self.families
            for font in family.fonts
        ]
        photos = hashlib.sha256()
        for photo in self.photos:
            photos.update(repr(photo.shape).encode() + photo.tobytes())
        values = {
            "version": VERSION,
            "libraries": [PIL.__version__, np.__version__],
            "seed": self.seed,
            "effects": dataclasses.astuple(self.effects),
            "fonts": fonts,
            "words": self.words.digest,
            "photos": photos.hexdigest(),
        }
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _fits(text: str, font: Font, size: int) -> bool:
    """Return whether a text with spaced letters is narrower than the widest crop."""
    space = _SPACE * size * (len(text) + 2)
    return open_face(font, size).getlength(text) + space < LONGEST


def contact_sheet(crops: np.ndarray, words: Sequence[str], columns: int = 8):
    """Return a picture of all crops, each above its word."""
    N, high, wide = crops.shape
    rows = -(-N // columns)
    sheet = Image.new("L", (columns * (wide + 8), rows * (high + 18)), 255)
    draw = ImageDraw.Draw(sheet)
    for number, (crop, word) in enumerate(zip(crops, words, strict=True)):
        y, x = divmod(number, columns)
        x, y = x * (wide + 8), y * (high + 18)
        sheet.paste(Image.fromarray(crop), (x, y))
        draw.text((x, y + high + 1), word, fill=0)
    return sheet
