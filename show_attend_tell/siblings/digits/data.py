"""Read and write prepared digits, and make pictures of digits.

``digits.npz`` holds the arrays ``<split>_images``, (N, 28, 28) uint8, and
``<split>_labels``, (N,) uint8, of the split ``train`` and optionally ``test``. The last
training digits are the validation digits.

Pictures are digits placed in a larger, cluttered canvas, or a photo of one digit that
is reduced to 28 x 28 pixels as the authors of MNIST did: its ink fills 20 x 20 pixels
with its proportions kept, and its centre of mass is in the middle.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from show_attend_tell.config.settings import AnyExperiment
from show_attend_tell.runtime.errors import DataError, PhotoError
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.untrusted import reading
from show_attend_tell.siblings.common.arrays import open_archive
from show_attend_tell.siblings.digits.class_folders import Pictures, read_pictures
from show_attend_tell.siblings.digits.settings import DIGIT, PIECE, DigitSettings

FILE = "digits.npz"
CLASSES = 10
_SEED = 0  # of held-out pictures and of fixed pixels, the same for every model
_SPLITS = {"train": 0, "val": 1, "test": 2}
_BOX = 20  # longer side of the ink of a photo, in pixels
_LEAST = 24  # least difference of brightness between ink and ground, of 255
_INK = 0.3  # share of the darkest ink above which a pixel is part of the digit


class Digits(NamedTuple):
    """Digits or pictures with their labels."""

    images: np.ndarray  # (N, H, H) uint8, 255 is white ink
    labels: np.ndarray  # (N,) uint8 in [0, 10)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes; digits are named by their numbers."""
        return tuple(map(str, range(CLASSES)))

    def digest(self) -> str:
        """Return a digest of images and labels."""
        digest = hashlib.sha256(np.ascontiguousarray(self.images).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()


def write_digits(folder: str | Path, splits: Mapping[str, Digits]) -> Path:
    """Write the digits of each split atomically; return the file's path."""
    arrays = {
        f"{split}_{field}": values
        for split, digits in splits.items()
        for field, values in digits._asdict().items()
    }
    path = Path(folder) / FILE
    with atomic_path(path) as temporary:
        np.savez(temporary, **arrays)
    return path


def read_digits(folder: str | Path, split: str, validation: int) -> Digits:
    """Return the digits of a split.

    Args:
        folder: a prepared folder.
        split: ``train``, ``val`` or ``test``.
        validation: how many of the last training digits are the validation digits.

    Raises:
        DataError: the file is absent or damaged, has no such split, or too few
            training digits.
    """
    path = Path(folder) / FILE
    stored_split = "test" if split == "test" else "train"
    with (
        reading(path, DataError, "run `prepare` again", "file; run `prepare` first"),
        open_archive(path) as stored,
    ):
        if f"{stored_split}_images" not in stored.names:
            raise DataError(
                f"{path}: has no {split} digits; choose --split val, or prepare a "
                "folder that holds the t10k files"
            )
        digits = Digits(
            stored.read(f"{stored_split}_images"), stored.read(f"{stored_split}_labels")
        )
        N = digits.labels.size
        shapes = digits.images.shape, digits.labels.shape
        if shapes != ((N, DIGIT, DIGIT), (N,)):
            raise ValueError(f"its images have the shape {digits.images.shape}")
    if split == "test":
        return digits
    if N <= validation:
        raise DataError(
            f"{path}: data.validation must be less than the {N} training digits. "
            f"Received: {validation}; lower it"
        )
    chosen = slice(-validation, None) if split == "val" else slice(-validation)
    return Digits(digits.images[chosen], digits.labels[chosen])


def read_split(
    experiment: AnyExperiment, work: Path, split: str
) -> "Digits | Pictures":
    """Return the prepared digits, or the user's pictures, of an experiment.

    See :func:`read_digits` and :func:`class_folders.read_pictures`.
    """
    if experiment.data.source == "class_folders":
        return read_pictures(experiment, work, split)
    folder = work / experiment.data.name
    return read_digits(folder, split, experiment.data.validation)


def make_pictures(
    images: np.ndarray,
    pool: np.ndarray,
    settings: DigitSettings,
    rng: np.random.Generator,
) -> np.ndarray:
    """Place each digit anywhere in a picture with pieces of other digits.

    Args:
        images: digits, (N, 28, 28) uint8.
        pool: digits of the same split, whose pieces are the clutter, (M, 28, 28).
        settings: ``canvas`` H and the number of pieces, ``clutter``.
        rng: generator of places and pieces.

    Returns:
        (N, H, H) uint8; sums of ink are clipped to 255.
    """
    N = len(images)
    H = settings.canvas
    # The user's pictures, which `read_pictures` requires to have this side, end here.
    if images.shape[1] == H and not settings.clutter:
        return images
    # 16 bits, because digits and pieces overlap.
    sums = np.zeros((N, H, H), np.uint16)
    for _ in range(settings.clutter):
        source = pool[rng.integers(len(pool), size=N)]  # (N, 28, 28)
        # + 1, because the end is exclusive: the last place must be possible too.
        start = rng.integers(DIGIT - PIECE + 1, size=(N, 2))
        rows, columns = _windows(start, PIECE)
        pieces = source[np.arange(N)[:, None, None], rows, columns]  # (N, 8, 8)
        _add(sums, pieces, rng.integers(H - PIECE + 1, size=(N, 2)))
    _add(sums, images, rng.integers(H - DIGIT + 1, size=(N, 2)))
    return np.minimum(sums, 255).astype(np.uint8)


def _windows(start: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows (N, side, 1) and columns (N, 1, side) of windows at (N, 2)."""
    steps = np.arange(side)
    rows, columns = (start[:, k, None] + steps for k in range(2))
    return rows[:, :, None], columns[:, None, :]


def _add(sums: np.ndarray, pieces: np.ndarray, start: np.ndarray) -> None:
    """Add pieces (N, side, side) to pictures (N, H, H) at their corners (N, 2)."""
    rows, columns = _windows(start, pieces.shape[1])
    # Every index occurs once, so that += adds all of a piece.
    sums[np.arange(len(sums))[:, None, None], rows, columns] += pieces


def held_out_pictures(
    digits: "Digits | Pictures", settings: DigitSettings, split: str
) -> Digits:
    """Return the pictures of validation or test digits, always the same ones."""
    rng = np.random.default_rng([_SEED, _SPLITS[split]])
    images = make_pictures(digits.images, digits.images, settings, rng)
    return Digits(images, digits.labels)


def binarise(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sample each pixel, uint8, as 255 with the probability of its intensity, or 0."""
    noise = rng.random(images.shape, np.float32)
    # Noise is in [0, 1): a pixel of 0 is never ink, and one of 255 always.
    return np.where(noise * 255 < images, 255, 0).astype(np.uint8)


def binarise_fixed(digits: Digits, split: str) -> Digits:
    """Return all digits of a split with binary pixels, the same in every call."""
    # The third number separates the pixels' noise from the random places.
    rng = np.random.default_rng([_SEED, _SPLITS[split], 1])
    return digits._replace(images=binarise(digits.images, rng))


def held_out_binary(digits: Digits, settings: DigitSettings, split: str) -> np.ndarray:
    """Return the binary pictures of validation or test digits; (N, H, H), 0 or 255.

    Every model is measured on the same pixels, whatever the binarisation of training.
    """
    return held_out_pictures(binarise_fixed(digits, split), settings, split).images


def digit_of_image(image: Image.Image) -> np.ndarray:
    """Return the digit of an image, (28, 28) uint8, where 255 is ink.

    The ground is the median brightness of the border; ink may be darker or brighter.

    Raises:
        PhotoError: the image has no ink.
    """
    grey = np.asarray(image.convert("L"), np.float32)  # (H, W)
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    ink = np.abs(grey - np.median(border))
    most = float(ink.max())
    if most < _LEAST:
        raise PhotoError(
            "`photo` must show a digit. Received: the same brightness everywhere; draw "
            "a digit, or choose another photo"
        )
    # Without a threshold the noise of a photo is ink, and the box is the whole photo.
    ink = np.where(ink > _INK * most, ink / most, 0)
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = _BOX / max(ink.shape)
    height, width = (max(1, round(side * scale)) for side in ink.shape)
    small = Image.fromarray(np.uint8(np.round(255 * ink)))
    small = np.asarray(small.resize((width, height), Image.Resampling.BOX))
    # Specks far apart in a large photo disappear when it is reduced.
    if not small.any():
        raise PhotoError(
            "`photo` must show a digit. Received: only specks; draw a digit, or choose "
            "another photo"
        )
    return _centred(small)


def _centred(ink: np.ndarray) -> np.ndarray:
    """Place ink of at most 20 x 20 pixels with its centre of mass in the middle."""
    digit = np.zeros((DIGIT, DIGIT), np.uint8)
    corner = []
    for axis, side in enumerate(ink.shape):
        weights = ink.sum(axis=1 - axis, dtype=np.float64)
        centre = np.average(np.arange(side) + 0.5, weights=weights)
        first = round(DIGIT / 2 - centre)
        # The centre of mass of an uneven shape could place ink outside.
        corner.append(min(max(first, 0), DIGIT - side))
    top, left = corner
    digit[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return digit
