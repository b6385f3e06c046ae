"""Fonts, words and archives of crops for tests that need no installed fonts."""

from pathlib import Path

import matplotlib
from pictures import image_bytes
from PIL import Image

from show_attend_tell.siblings.words.rendering.fonts import Font
from show_attend_tell.siblings.words.rendering.render import Renderer
from show_attend_tell.siblings.words.rendering.word_list import WordList

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SANS = Font(str(FONTS / "DejaVuSans.ttf"))
SERIF = Font(str(FONTS / "DejaVuSerif-Bold.ttf"))
FAMILIES = {"DejaVu Sans": [SANS], "DejaVu Serif": [SERIF]}
LISTED = {"stop": 4.0, "open": 1.0, "a": 1.0, "hotel": 2.0, "restaurant": 0.5}


class OneWord:
    """A word list that always returns the same text."""

    digest = "one"

    def __init__(self, text="Word"):
        self._text = text

    def __len__(self):
        return 1

    def sample(self, rng):
        """Return the word and its text."""
        return self._text.lower(), self._text

    def neighbour(self, rng):
        """Return its text."""
        return self._text


def renderer(seed=0, families=FAMILIES, words=None, photos=()):
    """Return a renderer of some words in two fonts."""
    return Renderer(families, words or WordList(LISTED), seed, photos)


def crop_bytes(number, size=(60, 24)):
    """Return a JPEG file whose grey level depends on the number."""
    return image_bytes(Image.new("RGB", size, (number % 256,) * 3), "JPEG")


def crop_files(split="train", count=10, per_photo=2):
    """Return the tags and crops of a split: the tags name .png files."""
    lines, files = [], {}
    for number in range(count):
        stem = f"{split}/{number // per_photo}_{number % per_photo + 1}"
        lines.append(f"{stem}.png Word{number}")
        files[f"{stem}.jpg"] = crop_bytes(10 * number)
    return {f"{split}.tags": "\n".join(lines).encode(), **files}
