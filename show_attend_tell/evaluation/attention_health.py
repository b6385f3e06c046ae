"""Whether attention still moves from word to word, and between places.

Two failures that people who trained the authors' code met: attention that looks alike
for every word, and attention that has collapsed on one location for all photos.
"""

import logging
from collections.abc import Sequence

import numpy as np

logger = logging.getLogger(__name__)

STILL = 1e-4  # a relative movement of one percent
COLLAPSED = 0.9  # of all attention on one location


def measure(alphas: Sequence[np.ndarray]) -> dict[str, float]:
    """Measure the attention of captions.

    Args:
        alphas: (T, L) attention weights of each caption.

    Returns:
        ``attention_movement``: the variance of alpha over a caption's steps, summed
        over locations, relative to the sum of its mean squares (0: every word alike;
        towards 1: another location for every word); the mean over captions of two words
        or more, 1 where there is none. ``attention_peak``: the largest share of all
        attention that falls on one location.
    """
    moved = [
        alpha.var(axis=0).sum() / np.square(alpha).mean(axis=0).sum()
        for alpha in alphas
        if len(alpha) > 1
    ]
    return {
        "attention_movement": float(np.mean(moved)) if moved else 1.0,
        "attention_peak": float(np.concatenate(alphas).mean(axis=0).max()),
    }


class AttentionWatch:
    """Warns once of each failure, however often it is told."""

    def __init__(self):
        self._warned = set()

    def __call__(self, scores: dict[str, float]) -> None:
        """Look at what :func:`measure` returned, where it is among these scores."""
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
        kind = message.partition(":")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning(message)
