"""Damage a painted word as cameras and files do."""

import io

import numpy as np
from PIL import Image, ImageFilter

from data_prep.words.effects import Effects

# Motion over five pixels: level, upright, and along both diagonals.
_LINES = [
    np.eye(5)[[2, 2, 2, 2, 2]].T,
    np.eye(5)[[2, 2, 2, 2, 2]],
    np.eye(5),
    np.eye(5)[::-1],
]
_MOVED = 30  # rows of the smallest picture that five pixels do not make illegible
_MOTIONS = [ImageFilter.Kernel((5, 5), line.ravel().tolist()) for line in _LINES]


def damage(
    picture: np.ndarray, rng: np.random.Generator, effects: Effects
) -> Image.Image:
    """Return a painted word with the faults of a photo, as a grey image.

    Args:
        picture: (H, W) from 0 to 255.
        rng: the word's generator.
        effects: kinds and strengths of faults.
    """
    image = Image.fromarray(np.round(picture).astype(np.uint8))
    image = _blurred(image, rng, effects)
    if rng.random() < effects.reduced:
        image = _reduced(image, rng, effects)
    if rng.random() < effects.sharpened:
        radius, percent = rng.uniform(0.8, 2.0), int(rng.integers(50, 250))
        image = image.filter(ImageFilter.UnsharpMask(radius, percent, 0))
    image = Image.fromarray(_levels(np.asarray(image, np.float32), rng, effects))
    if rng.random() < effects.compressed:
        image = _compressed(image, int(rng.integers(*effects.quality)))
    return image


def _blurred(
    image: Image.Image, rng: np.random.Generator, effects: Effects
) -> Image.Image:
    if effects.blur:
        # A power makes small radii more frequent; the largest fits 32 rows.
        radius = effects.blur * rng.random() ** 3 * max(1.0, image.height / 32)
        image = image.filter(ImageFilter.GaussianBlur(radius))
    if rng.random() < effects.motion and image.height >= _MOVED:
        image = image.filter(_MOTIONS[rng.integers(len(_MOTIONS))])
    return image


def _reduced(
    image: Image.Image, rng: np.random.Generator, effects: Effects
) -> Image.Image:
    """Resize the image to fewer rows, in the same proportions."""
    height = int(rng.integers(*effects.heights))
    if height >= image.height:
        return image
    width = max(4, round(image.width * height / image.height))
    how = Image.Resampling.BICUBIC if rng.random() < 0.5 else Image.Resampling.BILINEAR
    return image.resize((width, height), how)


def _levels(
    picture: np.ndarray, rng: np.random.Generator, effects: Effects
) -> np.ndarray:
    """Apply gamma, inversion and noise to grey levels."""
    low, high = effects.gamma
    if low < high:
        exponent = np.exp(rng.uniform(np.log(low), np.log(high)))
        picture = 255.0 * (picture / 255.0) ** np.float32(exponent)
    if rng.random() < effects.inverted:
        picture = 255.0 - picture
    if effects.noise:
        deviation = np.float32(effects.noise * rng.random() ** 3)
        picture = picture + deviation * rng.standard_normal(picture.shape, np.float32)
    return np.clip(np.round(picture), 0, 255).astype(np.uint8)


def _compressed(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)
