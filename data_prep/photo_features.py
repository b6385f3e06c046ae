"""Read photos and run the encoder over them, batch by batch."""

import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.feature_part import PartContent
from data_prep.photo_files import file_of
from show_attend_tell.data.features import PhotoFile
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import DataError, PhotoError
from show_attend_tell.runtime.read_ahead import read_ahead

BATCH = 32  # photos per step; another size may change the last bits of the features
_AHEAD = 4 * BATCH  # photos decoded ahead of the network
_LARGEST = float(np.finfo(np.float16).max)


class DecodedPhoto(NamedTuple):
    """The encoder's input of one photo.

    Attributes:
        square: (S, S, 3) uint8, black if the photo is unreadable.
        problem: the reason why the photo is unreadable, or "".
        file: the content of its file, unknown if it cannot be read.
    """

    square: np.ndarray
    problem: str
    file: PhotoFile


def encode_photos(
    encoder: Encoder,
    photos: Iterator[DecodedPhoto],
    advance: Callable[[int], object] = lambda photos: None,
) -> PartContent:
    """Return the features of the n photos of a part, with their problems and files.

    Features of unreadable photos are zeros. Values out of float16's range are clipped
    to it; infinities stay, and small values become 0.

    Args:
        encoder: computes the features.
        photos: the part's photos from :func:`decoded_photos`.
        advance: called with the number of photos of each batch.

    Raises:
        DataError: all values of a batch that are not 0 become 0.
    """
    features = []
    problems: list[str] = []
    files: list[PhotoFile] = []
    while batch := list(itertools.islice(photos, BATCH)):
        squares = np.stack([photo.square for photo in batch])
        encoded = encoder.encode(squares)  # (b, S, S, 3) -> (b, L, D)
        # An infinity is a fault of the encoder, which clipping must not hide.
        infinite = np.isinf(encoded)
        clipped = np.clip(encoded, -_LARGEST, _LARGEST)
        stored = np.where(infinite, encoded, clipped).astype(np.float16)
        # Random weights of a deep network scale its values down layer by layer.
        if encoded.any() and not stored.any():
            raise DataError(
                "the encoder's features must have values that float16 holds, of 1e-7 "
                f"or more. Received: at most {np.abs(encoded).max():.1g}; check the "
                "encoder's weights, or choose an earlier encoder.layer"
            )
        # The encoder has features of a black square too.
        stored[[bool(photo.problem) for photo in batch]] = 0
        features.append(stored)
        problems += [photo.problem for photo in batch]
        files += [photo.file for photo in batch]
        advance(len(batch))
    return PartContent(np.concatenate(features), problems, files)


def decoded_photos(
    encoder: Encoder, paths: Iterable[Path], mirror: bool, threads: int
) -> Generator[DecodedPhoto, None, None]:
    """Decode photos in threads, some batches ahead of the network.

    Args:
        encoder: defines the preprocessing.
        paths: paths of the photos.
        mirror: whether to mirror the photos.
        threads: number of threads.
    """
    read = functools.partial(decode, encoder, mirror=mirror)
    yield from read_ahead(read, paths, _AHEAD, threads)


def decode(encoder: Encoder, path: Path, mirror: bool) -> DecodedPhoto:
    """Return the encoder's input of a photo, or why it cannot be read."""
    # Before the pixels: a photo that is replaced in between has then changed.
    file = file_of(path)
    try:
        image = load_photo(path)
    except PhotoError as error:
        side = encoder.settings.image_size
        return DecodedPhoto(np.zeros((side, side, 3), np.uint8), str(error), file)
    return DecodedPhoto(encoder.preprocess(image, mirror), "", file)
