"""Generate synthetic features and captions with the statistics of real ones."""

from collections.abc import Sequence

import numpy as np

from benchmarks.sizes import Sizes
from show_attend_tell.data.vocabulary import SPECIAL

# Number of Flickr8k's 30,000 training captions that have 2, 3, ... words.
_FLICKR8K = (
    *(15, 126, 346, 861, 1959, 2536, 2929, 3318, 3320, 3130, 2777, 2322, 1847, 1327),
    *(
        979,
        663,
        513,
        365,
        204,
        136,
        110,
        74,
        52,
        33,
        20,
        11,
        6,
        10,
        4,
        3,
        1,
        2,
        0,
        0,
        1,
    ),
)
_SHORTEST = 2


def words(count: int) -> list[str]:
    """Return a vocabulary of `count` words, the special ones first."""
    return [*SPECIAL, *(f"w{k}" for k in range(count - len(SPECIAL)))]


def features(rng: np.random.Generator, photos: int, sizes: Sizes) -> np.ndarray:
    """Return features as after a ReLU, (photos, L, D) float16, 95 % zeros in runs.

    About half of the others are in pairs; LZ4 leaves a tenth of the bytes, as of
    VGG's.
    """
    _, L, D, *_ = sizes.letters
    values = rng.standard_normal((photos, L, D), np.float32) * 3
    pairs = rng.random((photos, L, -(-D // 2)), np.float32) < 0.027
    single = rng.random((photos, L, D), np.float32) < 0.024
    nonzero = np.repeat(pairs, 2, axis=2)[:, :, :D] | single
    return np.where(nonzero, np.abs(values), 0).astype(np.float16)


def lengths(rng: np.random.Generator, captions: int) -> np.ndarray:
    """Return numbers of words distributed like Flickr8k's, (captions,)."""
    p = np.asarray(_FLICKR8K) / sum(_FLICKR8K)
    return _SHORTEST + rng.choice(len(p), captions, p=p)


def flickr8k_lengths() -> np.ndarray:
    """Return the numbers of words of Flickr8k's training captions, (30000,)."""
    return np.repeat(_SHORTEST + np.arange(len(_FLICKR8K)), _FLICKR8K)


def tokens(
    rng: np.random.Generator, caption_lengths: Sequence[int], vocabulary: int
) -> list[np.ndarray]:
    """Return word ids, none of them special, of each caption."""
    first = len(SPECIAL)
    return [rng.integers(first, vocabulary, n, np.int32) for n in caption_lengths]


def batch(rng: np.random.Generator, sizes: Sizes) -> tuple[np.ndarray, ...]:
    """Return annotations (B, L, D) float16, inputs and targets (B, T) int32.

    Every caption has T words, <end> included, so that there is no padding to skip.
    """
    B, *_, K, T = sizes.letters
    ids = np.stack(tokens(rng, [T - 1] * B, K))
    start, end = (np.full((B, 1), SPECIAL.index(s), np.int32) for s in SPECIAL[1:3])
    inputs = np.hstack([start, ids])
    targets = np.hstack([ids, end])
    return features(rng, B, sizes), inputs, targets


class MemoryReader:
    """Features in memory with the interface of :class:`data.features.FeatureReader`."""

    def __init__(self, values: np.ndarray):
        self._values = values
        self.shape = values.shape

    def read(self, rows: Sequence[int]) -> np.ndarray:
        """Return the features of some rows."""
        return self._values[np.asarray(rows)]
