"""A small reader, crops of made-up words, and an experiment that reads them."""

import dataclasses
import functools

import numpy as np
from pictures import image_bytes
from PIL import Image, ImageDraw, ImageFont

from show_attend_tell.config.settings import experiment_from_dict
from show_attend_tell.siblings.words.data import (
    CHARACTERS,
    IMAGES,
    Word,
    write_manifest,
)
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.page_reader import PageReader
from show_attend_tell.siblings.words.settings import ReaderSettings

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
_TABLES = {
    "data": {"name": "made-up", "source": "words"},
    "training": {"epochs": 2, "batch_size": 8, "warmup_steps": 2, "jit_compile": False},
    "reader": {
        "iterations": 1,
        "channels": [4, 4, 8, 8],
        "width": 16,
        "embedding_width": 8,
        "attention_width": 8,
        "feature_width": 16,
    },
}


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


def random_reader(variant=None):
    """Return a reader with random weights that writes characters."""
    model, rng = Reader(settings_of(variant or {})), np.random.default_rng(3)
    for weight in model.decoder.trainable_weights:
        weight.assign(weight + 0.4 * rng.standard_normal(weight.shape))
    return model


@functools.cache
def tiny_page_reader():
    """Return a reader of the page, the same in the whole test session."""
    return PageReader(random_reader())


def crop_bytes(word="stop"):
    """Return the PNG of a drawn word."""
    return image_bytes(Image.fromarray(drawn_crop(word)))


def prepare_words(work, train=40, val=12, test=0, name="made-up", longest=6):
    """Write a prepared folder; return the work folder."""
    counts = {"train": train, "val": val, "test": test}
    folder, images, rows = work / name, [], []
    folder.mkdir(parents=True)
    for seed, (split, count) in enumerate(counts.items()):
        if count:
            crops, words = drawn_words(count, longest, seed)
            images.append(crops)
            rows += [Word(split, word) for word in words]
    np.save(folder / IMAGES, np.concatenate(images))
    write_manifest(folder, rows)
    return work


def experiment(name="tiny", **changes):
    """Return a small experiment; keywords are tables of changed settings."""
    tables = {key: {**table, **changes.get(key, {})} for key, table in _TABLES.items()}
    return experiment_from_dict({"name": name, "task": "read", **tables})
