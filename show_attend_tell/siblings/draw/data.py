"""Make binary pictures of digits."""

import numpy as np

from show_attend_tell.config.siblings import GeneratedDigitSettings
from show_attend_tell.data.digits import Digits, held_out_pictures

_BINARISE_SEED = 0  # of fixed pixels; the same for every model
_SPLITS = {"train": 0, "val": 1, "test": 2}


def binarise(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sample each pixel, uint8, as 255 with the probability of its intensity, or 0."""
    noise = rng.random(images.shape, np.float32)
    return np.where(noise * 255 < images, 255, 0).astype(np.uint8)


def binarise_fixed(digits: Digits, split: str) -> Digits:
    """Return all digits of a split with binary pixels, the same in every call."""
    # The third number separates these random numbers from those of the places.
    rng = np.random.default_rng([_BINARISE_SEED, _SPLITS[split], 1])
    return digits._replace(images=binarise(digits.images, rng))


def held_out_binary(
    digits: Digits, settings: GeneratedDigitSettings, split: str
) -> np.ndarray:
    """Return the binary pictures of validation or test digits; (N, H, H), 0 or 255.

    The pictures do not depend on ``settings.binarise``: every model is measured on the
    same pixels.
    """
    return held_out_pictures(binarise_fixed(digits, split), settings, split).images
