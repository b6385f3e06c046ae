"""Render words as they look in photos, each with its own generator.

A word is chosen, drawn in a font, cropped, painted and damaged. The same arguments
render the same bytes with the same versions of Pillow and NumPy.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL

from data_prep.words.drawing import LONGEST, MOST_SPACE, crop, draw
from data_prep.words.fonts import Font, open_face
from data_prep.words.paint import damage, paint
from data_prep.words.word_list import WordList
from show_attend_tell.data.words import SPLITS, resize_crop

VERSION = 3  # raise it when the same arguments render other bytes
_SIZES = (28, 32, 38, 44, 52, 60)  # of fonts, in pixels
_SLANTED = 0.20  # share of slanted fonts, where a family has one


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
        family = [*self.families.values()][rng.integers(len(self.families))]
        slanted = rng.random() < _SLANTED
        fonts = [font for font in family if font.slanted == slanted] or family
        font = fonts[rng.integers(len(fonts))]
        sizes = [size for size in _SIZES if _fits(text, font, size)] or _SIZES[:1]
        face = open_face(font, sizes[rng.integers(len(sizes))])
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
            whole.update(repr(photo.shape).encode() + photo.tobytes())
        return whole.hexdigest()


def _fits(text: str, font: Font, size: int) -> bool:
    """Return whether a text with spaced letters is narrower than the widest crop."""
    space = MOST_SPACE * size * (len(text) + 2)
    return open_face(font, size).getlength(text) + space < LONGEST
