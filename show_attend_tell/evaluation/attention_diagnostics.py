"""Measure how attention moves and spreads, and warn when it stops working.

Two failures are known from trainings of the authors' code: attention that is the same
for every word, and attention that has collapsed on one location for all photos.
"""

import logging
from collections.abc import Sequence

import numpy as np

from show_attend_tell.decoding import Hypotheses

logger = logging.getLogger(__name__)

STILL = 1e-4  # attention_movement below which attention counts as unmoved
COLLAPSED = 0.9  # attention_peak above which attention counts as collapsed


def measure_attention(alphas: Sequence[np.ndarray]) -> dict[str, float]:
    """Compute how much attention moves within captions, and its largest share.

    Args:
        alphas: (T, L) attention weights of each caption.

    Returns:
        ``attention_movement``: variance of alpha over the steps of a caption, summed
        over locations, relative to the sum of its mean squares (0: the same alpha at
        every step; towards 1: another location at every step); mean over the captions
        of two words or more, 1 if there is none. ``attention_peak``: the largest share
        of all attention that falls on one location.
    """
    movements = [
        alpha.var(axis=0).sum() / np.square(alpha).mean(axis=0).sum()
        for alpha in alphas
        if len(alpha) > 1
    ]
    return {
        "attention_movement": float(np.mean(movements)) if movements else 1.0,
        "attention_peak": float(np.concatenate(alphas).mean(axis=0).max()),
    }


def attention_entropy(alpha: np.ndarray) -> np.ndarray:
    """Compute the normalised entropy of attention, -sum_i alpha_i log alpha_i / log L.

    Args:
        alpha: (..., L) weights, L above 1.

    Returns:
        (...), 0 where one location has all attention, 1 where attention is uniform.
    """
    alpha = np.asarray(alpha, np.float64)
    logs = np.log(np.maximum(alpha, 1e-30))  # 0 log 0 is 0
    return -(alpha * logs).sum(axis=-1) / np.log(alpha.shape[-1])  # (..., L) -> (...)


def attention_statistics(hypotheses: Hypotheses) -> dict[str, np.ndarray]:
    """Compute the values whose histograms show how attention spreads.

    Args:
        hypotheses: hypotheses of N photos; the best one of each photo is measured,
            with its end word.

    Returns:
        ``entropy`` and ``beta`` of every word, concatenated, and ``coverage``,
        (N * L,): sum_t alpha_ti, the attention of a location over the caption, times
        L / T, so that uniform coverage is 1; Eq. (14) pulls towards it.
    """
    alpha = np.asarray(hypotheses.alpha)[:, 0]  # (N, W, T, L) -> (N, T, L)
    N, T, L = alpha.shape
    lengths = np.asarray(hypotheses.lengths)[:, 0]  # (N, W) -> (N,)
    is_word = np.arange(T) < lengths[:, None]  # (N, T)
    coverage = alpha.sum(axis=1) * L / np.maximum(lengths, 1)[:, None]  # -> (N, L)
    return {
        "entropy": attention_entropy(alpha[is_word]),  # (words, L) -> (words,)
        "beta": np.asarray(hypotheses.beta)[:, 0][is_word],  # (N, W, T) -> (words,)
        "coverage": coverage.reshape(N * L),
    }


class AttentionMonitor:
    """Log a warning the first time that each failure of attention occurs."""

    def __init__(self):
        self._warned = set()

    def __call__(self, scores: dict[str, float]) -> None:
        """Check the values of :func:`measure_attention`, if `scores` has them."""
        movement = scores.get("attention_movement", 1.0)
        peak = scores.get("attention_peak", 0.0)
        if peak > COLLAPSED:
            self._warn(
                f"attention has collapsed: {peak:.0%} of it is on one location; raise "
                "hard.entropy_weight, lower training.learning_rate or start from a "
                "soft model by training.init_from"
            )
        elif movement < STILL:
            self._warn(
                "attention has stopped moving: the variance of alpha over a caption's "
                f"steps is {movement:.0e} of its mean square; lower "
                "training.doubly_stochastic or hard.entropy_weight"
            )

    def _warn(self, message: str) -> None:
        failure = message.partition(":")[0]
        if failure not in self._warned:
            self._warned.add(failure)
            logger.warning(message)
