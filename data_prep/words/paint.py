"""Paint the layers of a word, then degrade the picture as cameras and files do."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageChops, ImageFilter

from data_prep.words.effects import Effects
from data_prep.words.layers import Layers, Mask

_COARSE = (3, 8)  # rows and columns of a field, before it is enlarged
# Texture and uneven light may take this share of the contrast, so text stays visible.
_MOST_TEXTURE, _MOST_FIELD = 0.25, 0.35
_LEAST_OUTLINE = 60.0  # grey levels between text and outline
_BLEND = (0.2, 0.6)  # share of a photo
_FROM_PHOTOS = 0.6  # share of textures, where there are photos
_CONTRASTS = (1.8, 1.3)  # of the beta distribution of contrast: signs are easy to see
# Motion over five pixels: level, upright, and along both diagonals.
_LINES = [
    np.eye(5)[[2, 2, 2, 2, 2]].T,
    np.eye(5)[[2, 2, 2, 2, 2]],
    np.eye(5),
    np.eye(5)[::-1],
]
_MOVED = 30  # rows; a blur over five pixels makes a smaller picture illegible
_MOTIONS = [ImageFilter.Kernel((5, 5), line.ravel().tolist()) for line in _LINES]


def sample_levels(rng: np.random.Generator, contrast: float) -> tuple[float, float]:
    """Return the grey levels of ground and text, at least `contrast` apart."""
    apart = contrast + (255.0 - contrast) * rng.beta(*_CONTRASTS)
    dark = rng.uniform(0.0, 255.0 - apart)
    return (dark, dark + apart) if rng.random() < 0.5 else (dark + apart, dark)


def paint(
    layers: Layers,
    rng: np.random.Generator,
    effects: Effects,
    photos: Sequence[np.ndarray] = (),
) -> np.ndarray:
    """Return the picture of placed layers, (H, W) float32 from 0 to 255.

    Grounds may be cut from `photos`, each (H, W) uint8.
    """
    width, height = layers.text.size
    shape = height, width
    ground, ink = sample_levels(rng, effects.contrast)
    apart = abs(ground - ink)
    strongest = min(effects.field, _MOST_FIELD * apart / 2)
    field = _field(shape, rng.uniform(0.0, strongest), rng)
    picture = ground + field
    if rng.random() < effects.texture:
        picture += _texture(shape, _MOST_TEXTURE * apart, rng, photos)
    if layers.board is not None:
        beyond = np.full(shape, rng.uniform(0.0, 255.0), np.float32)
        picture = _blend(beyond, layers.board, picture)
    if layers.shadow is not None:
        level = max(0.0, ground - rng.uniform(30.0, 150.0))
        if abs(level - ink) < effects.contrast:
            level = ground  # a shadow in the ink's level would thicken the letters
        strength = rng.uniform(0.4, 1.0)
        picture = _blend(picture, layers.shadow, level, strength)
    if layers.outline is not None:
        level = _away(ink, rng, _LEAST_OUTLINE)
        if layers.hollow:
            level, ink = ink, ground
        picture = _blend(picture, layers.outline, level)
    if layers.ruled is not None:
        level = ink if rng.random() < 0.5 else rng.uniform(0.0, 255.0)
        picture = _blend(picture, layers.ruled, level)
    light = _field(shape, rng.uniform(0.0, strongest), rng)
    if rng.random() < effects.shaded:
        light = light + _shading(shape, ground - ink, rng)
    picture = _blend(picture, layers.text, ink + light)
    if rng.random() < effects.relief:
        picture = picture + _relief(layers.text, apart, rng)
    return np.clip(picture, 0.0, 255.0)


def _shading(
    shape: tuple[int, int], towards: float, rng: np.random.Generator
) -> np.ndarray:
    """Return grey levels to add to ink that fades into the ground, up or down."""
    most = towards * rng.uniform(0.2, 0.6)
    ramp = np.linspace(0.0, most, shape[0], dtype=np.float32)
    return (ramp if rng.random() < 0.5 else ramp[::-1])[:, None]


def _relief(text: Mask, apart: float, rng: np.random.Generator) -> np.ndarray:
    """Return bright and dark edges that make letters look embossed."""
    reach = 1 + int(rng.integers(0, 1 + text.height // 40))
    x, y = (int(reach * rng.choice((-1, 1))) for _ in range(2))
    sides = (ImageChops.offset(text, *by) for by in ((x, y), (-x, -y)))
    dark, bright = (np.asarray(side, np.float32) for side in sides)
    strength = apart * rng.uniform(0.2, 0.6) / 255.0
    return strength * (bright - dark)


def _away(level: float, rng: np.random.Generator, contrast: float) -> float:
    """Return a grey level that contrasts with another like text with its ground."""
    room = max(level, 255.0 - level)
    apart = min(room, contrast + (255.0 - contrast) * rng.beta(*_CONTRASTS))
    darker = level - apart >= 0.0 and (rng.random() < 0.5 or level + apart > 255.0)
    return level - apart if darker else level + apart


def _blend(
    picture: np.ndarray,
    mask: Mask,
    level: float | np.ndarray,
    strength: float = 1.0,
) -> np.ndarray:
    """Paint a level where the mask has ink."""
    ink = np.asarray(mask, np.float32) * (strength / 255.0)
    return picture + ink * (level - picture)


def _field(
    shape: tuple[int, int], amplitude: float, rng: np.random.Generator
) -> np.ndarray:
    """Return a smooth field of normal deviates, (H, W) float32."""
    coarse = rng.standard_normal(_COARSE, np.float32) * np.float32(amplitude / 2)
    return _enlarged(np.clip(coarse, -amplitude, amplitude), shape)


def _enlarged(coarse: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    enlarged = Image.fromarray(coarse).resize(shape[::-1], Image.Resampling.BICUBIC)
    return np.asarray(enlarged)


def _texture(
    shape: tuple[int, int],
    amplitude: float,
    rng: np.random.Generator,
    photos: Sequence[np.ndarray],
) -> np.ndarray:
    """Return a texture to add to the ground: a part of a photo, or scaled noise.

    Its standard deviation is at most `amplitude`.
    """
    if photos and rng.random() < _FROM_PHOTOS:
        photo = photos[rng.integers(len(photos))]
        texture = _photo_part(photo, shape, rng) * rng.uniform(*_BLEND)
        wanted = min(amplitude, float(texture.std()))
    else:
        # Grain, wood and brick: cells that are as wide as high, or longer.
        cell = 2.0 * np.exp(rng.uniform(0.0, np.log(8.0), 2))
        rows, columns = (
            max(2, int(side / length)) for side, length in zip(shape, cell, strict=True)
        )
        texture = _enlarged(rng.standard_normal((rows, columns), np.float32), shape)
        wanted = amplitude * rng.random() ** 2
    deviation = float(texture.std())
    return texture * (wanted / deviation) if deviation else texture


def _photo_part(
    photo: np.ndarray, shape: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    """Return a random part of a photo, resized to the shape, with mean 0."""
    sides = [min(side, limit) for side, limit in zip(shape, photo.shape, strict=True)]
    y, x = (
        int(rng.integers(limit - side + 1))
        for side, limit in zip(sides, photo.shape, strict=True)
    )
    part = photo[y : y + sides[0], x : x + sides[1]].astype(np.float32)
    return _enlarged(part - part.mean(), shape)


def damage(
    picture: np.ndarray, rng: np.random.Generator, effects: Effects
) -> Image.Image:
    """Return a painted word, (H, W) from 0 to 255, degraded like a photo."""
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
