"""Small models of the page's digits, not trained, and a drawing of a digit."""

import functools

import numpy as np
from pictures import image_bytes
from PIL import Image, ImageDraw
from random_weights import randomised

from show_attend_tell.siblings.digits.draw.model import Draw
from show_attend_tell.siblings.digits.page_models import DigitModels
from show_attend_tell.siblings.digits.ram.model import RecurrentAttention
from show_attend_tell.siblings.digits.settings import DrawSettings, GlimpseSettings

GLIMPSES, STEPS = 3, 4


def tiny_ram(**changes):
    """Return a classifier of three glimpses whose answers differ."""
    widths = {"width": 16, "glimpse_width": 8, "location_width": 8}
    settings = GlimpseSettings(
        patch=8, scales=2, glimpses=GLIMPSES, **widths, **changes
    )
    rng = np.random.default_rng(1)
    return randomised(RecurrentAttention(settings, 28), rng, 0.3)


def tiny_draw():
    """Return a model that draws in four steps."""
    settings = DrawSettings(steps=STEPS, latent=6, width=12)
    return randomised(Draw(settings, 28, 28), np.random.default_rng(1), 0.3)


@functools.cache
def tiny_models():
    """Return both, the same in the whole test session."""
    return DigitModels(tiny_ram(), tiny_draw())


def drawing_bytes(ink=255, ground=0, side=280):
    """Return the PNG of a drawn one."""
    image = Image.new("L", (side, side), ground)
    line = [(0.5 * side, 0.15 * side), (0.45 * side, 0.85 * side)]
    ImageDraw.Draw(image).line(line, fill=ink, width=side // 12)
    return image_bytes(image)
