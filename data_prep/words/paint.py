"""Paint the masks of a word, then degrade the picture as cameras and files do."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageFilter

from data_prep.words.drawing import Layers, Mask

_CONTRAST = 30.0  # least difference of grey levels between text and ground
_CONTRASTS = (1.8, 1.3)  # of the beta distribution of contrast: signs are easy to see
_LEAST_OUTLINE = 60.0  # grey levels between text and outline
_MOST_TEXTURE = 0.25  # of the contrast, so that text stays visible
_FROM_PHOTOS = 0.6  # share of textures, where there are photos


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
        photo = photos[rng.integers(len(photos))]
        sides = np.minimum(shape, photo.shape)
        y, x = rng.integers(np.array(photo.shape) - sides + 1)
        part = photo[y : y + sides[0], x : x + sides[1]].astype(np.float32)
    else:
        cells = np.exp(rng.uniform(np.log(2.0), np.log(shape)))
        part = rng.standard_normal(np.maximum(2, shape / cells).astype(int), np.float32)
    image = Image.fromarray(part - part.mean())
    texture = np.asarray(image.resize(shape[::-1], Image.Resampling.BICUBIC))
    wanted = amplitude * rng.random() ** 2
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
