"""Estimate how far scores vary with the choice of photos: the bootstrap.

The N photos of a split are resampled with replacement :data:`RESAMPLES` times, N photos
each time, and every resample is scored (Efron and Tibshirani, *An Introduction to the
Bootstrap*, 1993; for BLEU, Koehn, EMNLP 2004). Only sums over photos are needed: a
corpus score is a function of summed statistics, so a resample is one row of a matrix
product.

The same seed draws the same photos for every set of captions of the same photos, so
scores of several models are paired.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 1000
SEED = 0
LEVEL = 0.95
# A divisor of RESAMPLES.
_BLOCK = 100  # resamples drawn together, which bounds the memory for many photos


class Statistic(NamedTuple):
    """Values of each photo; the score is a function of their sums.

    Attributes:
        values: (N, k), one row for each photo.
        compute: maps sums over photos, (..., k), to scores (...).
    """

    values: np.ndarray
    compute: Callable[[np.ndarray], np.ndarray]

    def score(self) -> float:
        """Return the score of all photos."""
        return float(self.compute(self.values.sum(axis=0)))


class Scored(NamedTuple):
    """A score in percent, as the metric's library computes it, and its statistic."""

    value: float
    statistic: Statistic


def ratio_statistic(
    numerators: Sequence[float] | np.ndarray,
    denominators: Sequence[float] | np.ndarray,
) -> "Statistic":
    """Return the statistic of a share: a sum of numerators over denominators.

    Args:
        numerators: (N,).
        denominators: (N,).
    """
    values = np.stack([numerators, denominators], axis=1).astype(np.float64)
    return Statistic(values, _ratio)


def mean_score(scores: Sequence[float], mean: float | None = None) -> Scored:
    """Return the mean of (N,) scores of captions, 0 to 1, in percent.

    Args:
        scores: score of each caption.
        mean: the mean as a library computes it; by default the sum over N.
    """
    mean = sum(scores) / len(scores) if mean is None else mean
    percent = [100 * score for score in scores]
    return Scored(100 * mean, ratio_statistic(percent, np.ones(len(percent))))


def _ratio(sums: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # no photo with a denominator was drawn
        return sums[..., 0] / sums[..., 1]


def draw_counts(photos: int) -> Iterator[np.ndarray]:
    """Yield how often each photo is drawn, (100, N) resamples at a time."""
    rng = np.random.default_rng(SEED)
    for _ in range(RESAMPLES // _BLOCK):
        # N draws with replacement are one multinomial draw of the counts of photos.
        counts = rng.multinomial(photos, np.full(photos, 1 / photos), _BLOCK)
        yield counts.astype(np.float64)


def resample(statistics: Mapping[str, Statistic]) -> dict[str, np.ndarray]:
    """Score R = :data:`RESAMPLES` resamples of the photos.

    Args:
        statistics: score -> statistic, all of the same N photos.

    Returns:
        Score -> (R,), NaN where a resample has no photo that the score counts.
    """
    parts: dict[str, list[np.ndarray]] = {name: [] for name in statistics}
    photos = len(next(iter(statistics.values())).values) if statistics else 0
    for counts in draw_counts(photos) if statistics else ():
        for name, statistic in statistics.items():
            # (R, N) x (N, k) -> (R, k) -> (R,)
            parts[name].append(statistic.compute(counts @ statistic.values))
    return {name: np.concatenate(scores) for name, scores in parts.items()}


def intervals(statistics: Mapping[str, Statistic]) -> dict[str, tuple[float, float]]:
    """Return the 95 % percentile interval of each score over the resamples."""
    tails = [100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2]
    ends = {}
    for name, scores in resample(statistics).items():
        scores = scores[np.isfinite(scores)]
        if len(scores):
            low, high = np.percentile(scores, tails)
            ends[name] = float(low), float(high)
    return ends


def paired_p(differences: np.ndarray) -> float:
    """Return the two-sided p-value of paired differences between two models.

    Twice the smaller share of resamples whose difference is at most 0, or at least 0,
    where the observed photos count as one more resample on either side, so that p is
    never 0.

    Args:
        differences: (R,), the difference of both scores on each resample.
    """
    differences = differences[np.isfinite(differences)]
    below = np.sum(differences <= 0)
    above = np.sum(differences >= 0)
    return float(min(1.0, 2 * (min(below, above) + 1) / (len(differences) + 1)))
