"""Seed the captions that are sampled, one photo at a time, and remove repeated ones."""

import zlib

import numpy as np

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.decoding import Hypotheses


def is_sampled(decoding: DecodingSettings) -> bool:
    """Return whether captions depend on the seed."""
    return decoding.method == "sample" or decoding.locations == "sampled"


def photo_seed(seed: int, square: np.ndarray) -> tuple[int, int]:
    """Return the seed of one photo, which depends on no other photo.

    Args:
        seed: seed of the decoding settings.
        square: (S, S, 3) uint8.
    """
    return seed, zlib.crc32(square.tobytes())


def sample_seeds(seed: int, square: np.ndarray, count: int) -> list:
    """Return `count` independent seeds; the first equals :func:`photo_seed`."""
    first = np.random.SeedSequence(photo_seed(seed, square))
    return [first, *first.spawn(count - 1)]


def distinct_samples(samples: Hypotheses) -> Hypotheses:
    """Remove repeated captions; the first sample stays first, others by score.

    Args:
        samples: every field is (N, 1, ...), one hypothesis for each of N samples.

    Returns:
        Hypotheses of one photo, every field (W, ...) with W <= N.
    """
    samples = Hypotheses(*(field[:, 0] for field in samples))  # (N, 1, ...) -> (N, ...)
    others = 1 + np.argsort(-samples.scores[1:], kind="stable")
    kept: dict[bytes, int] = {}
    for row in (0, *others):
        kept.setdefault(samples.tokens[row].tobytes(), int(row))
    rows = list(kept.values())
    return Hypotheses(*(field[rows] for field in samples))
