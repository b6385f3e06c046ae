"""A small reader, and crops of made-up words."""

import dataclasses

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from show_attend_tell.config.words import ReaderSettings
from show_attend_tell.data.words import CHARACTERS

TINY = ReaderSettings(
    iterations=1,
    channels=(4, 6, 8, 10),
    width=12,
    embedding_width=5,
    attention_width=7,
    feature_width=9,
)
DECODERS = ("independent", "rnn1_start", "rnn1", "rnn2", "rnn2_factored", "attention")
VARIANTS = [
    {"decoder": decoder, "cell": cell}
    for decoder in DECODERS
    for cell in ("lstm", "rnn")
    if decoder != "independent" or cell == "lstm"
] + [{"attend": "features"}]


def settings_of(variant: dict) -> ReaderSettings:
    """Return the tiny settings with changes."""
    return dataclasses.replace(TINY, **variant)


def name_of(variant: dict) -> str:
    """Return the name of a variant, for a test's id."""
    return "-".join(variant.values())


def made_up_words(count: int, longest: int = 6, seed: int = 0) -> list[str]:
    """Return random words."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, count)
    return ["".join(rng.choice(list(CHARACTERS), n)) for n in lengths]


def drawn_crop(word: str) -> np.ndarray:
    """Return the crop of a word in matplotlib's font, (32, 100) uint8."""
    font = ImageFont.load_default(24)
    left, top, right, bottom = font.getbbox(word)
    image = Image.new("L", (right - left + 8, bottom - top + 8), 40)
    ImageDraw.Draw(image).text((4 - left, 4 - top), word, 220, font=font)
    return np.asarray(image.resize((100, 32), Image.Resampling.BICUBIC))


def drawn_words(count: int, longest: int = 6, seed: int = 0):
    """Return crops (N, 32, 100) and their words."""
    words = made_up_words(count, longest, seed)
    return np.stack([drawn_crop(word) for word in words]), words
