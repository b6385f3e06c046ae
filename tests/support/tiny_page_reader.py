"""A small reader of the page's words, not trained, and a drawing of a word."""

import functools
import io

import numpy as np
from PIL import Image
from tiny_reader import drawn_crop, settings_of

from show_attend_tell.deployment.server.sibling_models import WordReader
from show_attend_tell.siblings.words.model import Reader


def random_reader(variant=None):
    """Return a reader with random weights that writes characters."""
    model, rng = Reader(settings_of(variant or {})), np.random.default_rng(3)
    for weight in model.decoder.trainable_weights:
        weight.assign(weight + 0.4 * rng.standard_normal(weight.shape))
    return model


@functools.cache
def tiny_page_reader():
    """Return a reader of the page, the same in the whole test session."""
    return WordReader(random_reader())


def crop_bytes(word="stop"):
    """Return the PNG of a drawn word."""
    buffer = io.BytesIO()
    Image.fromarray(drawn_crop(word)).save(buffer, "PNG")
    return buffer.getvalue()
