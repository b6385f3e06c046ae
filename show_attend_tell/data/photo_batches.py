"""Batch photos with all of their captions, so that each is convolved once an epoch.

A batch has P rows of features and P C captions, the C captions of a row side by side.
C is the most common number of captions per photo: a photo with more captions takes
several rows, a photo with fewer is filled up with padding, which is ignored. Photos
whose longest captions have similar lengths share a batch.
"""

from collections.abc import Sequence

import numpy as np

from show_attend_tell.data.dataset import (
    CaptionBatches,
    Captions,
    pad_captions,
    read_views,
)
from show_attend_tell.data.features import FeatureReader

_NONE = -1  # in place of a caption's position


class PhotoBatches(CaptionBatches):
    """Training batches of whole photos.

    Args:
        captions: encoded captions.
        rows: row of each photo in the feature files, (photos,).
        readers: see :class:`CaptionBatches`.
        batch_size: maximum number of captions per batch; P is ``batch_size // C``.
        seed: seed of the order and of the mirroring.
        few_lengths: see :func:`padded_length`.
        part: see :class:`CaptionBatches`; P is a multiple of n.
        weights: see :class:`CaptionBatches`.
    """

    def __init__(
        self,
        captions: Captions,
        rows: np.ndarray,
        readers: Sequence[FeatureReader],
        batch_size: int,
        seed: int,
        few_lengths: bool = False,
        part: tuple[int, int] = (0, 1),
        weights: np.ndarray | None = None,
    ):
        self.groups = group_captions(captions.photos, batch_size)  # (G, C)
        C = self.groups.shape[1]
        super().__init__(
            captions, rows, readers, batch_size // C, seed, few_lengths, part
        )
        self.captions_per_row = C
        lengths = np.where(self.groups == _NONE, 0, captions.lengths[self.groups])
        photos = captions.photos[self.groups[:, 0]]
        self._set_items(lengths.max(axis=1), photos, weights)  # (G, C) -> (G,)

    def _make_batch(self, chosen: np.ndarray, rng: np.random.Generator) -> tuple:
        groups = self.groups[chosen]  # (N, C), N at most P
        captions = groups[groups != _NONE]
        (places,) = np.nonzero(groups.reshape(-1) != _NONE)
        size, few = self.batch_size * self.captions_per_row, self.few_lengths
        tokens = []
        for words in pad_captions(self.captions, captions, len(captions), few):
            rows = np.zeros((size, words.shape[1]), words.dtype)  # padding
            rows[places] = words
            tokens.append(rows.reshape(-1, size // self.batch_size, rows.shape[1]))
        photos = self.captions.photos[groups[:, 0]]
        rows = self.rows[photos]
        features = read_views(self.readers, rows, rng, self.batch_size, self.own)
        # (P, C, T) -> (P / n, C, T) -> (P C / n, T)
        tokens = [words[self.own].reshape(-1, words.shape[2]) for words in tokens]
        return features, *tokens


def group_captions(photos: np.ndarray, most: int) -> np.ndarray:
    """Return the captions of each photo in groups of C.

    Args:
        photos: photo of each caption, (N,).
        most: largest C.

    Returns:
        Positions of captions, (G, C); a row holds captions of one photo and is filled
        up with -1.
    """
    counts = np.unique(photos, return_counts=True)[1]
    C = min(int(np.bincount(counts).argmax()), most)
    order = np.argsort(photos, kind="stable")
    photos = photos[order]
    number = np.arange(len(photos)) - np.searchsorted(photos, photos)  # in its photo
    group = np.cumsum(number % C == 0) - 1
    groups = np.full((group[-1] + 1, C), _NONE)
    groups[group, number % C] = order
    return groups
