"""How attention spreads: over the locations of one word, and over a whole caption."""

import numpy as np

from show_attend_tell.decoding import Hypotheses


def entropy(alpha: np.ndarray) -> np.ndarray:
    """Return how evenly each word looks: -sum_i alpha_ti log alpha_ti / log L.

    Args:
        alpha: (..., L) weights, L above 1.

    Returns:
        (...), 0 where one location has all attention, 1 where all have the same.
    """
    alpha = np.asarray(alpha, np.float64)
    logs = np.log(np.maximum(alpha, 1e-30))  # 0 log 0 is 0
    return -(alpha * logs).sum(axis=-1) / np.log(alpha.shape[-1])


def of_captions(hypotheses: Hypotheses) -> dict[str, np.ndarray]:
    """Return the numbers whose histograms tell how attention is spread.

    Args:
        hypotheses: of N photos; the best of each counts, its end word included.

    Returns:
        ``entropy`` and ``beta`` of every word, one after the other, and ``coverage``,
        (N * L,): sum_t alpha_ti, the attention a location got over the caption times
        L / T, so that 1 everywhere is even; Eq. (14) pulls towards that.
    """
    alpha = np.asarray(hypotheses.alpha)[:, 0]  # (N, W, T, L) -> (N, T, L)
    lengths = np.asarray(hypotheses.lengths)[:, 0]
    L = alpha.shape[2]
    written = np.arange(alpha.shape[1]) < lengths[:, None]  # (N, T)
    coverage = alpha.sum(axis=1) * L / np.maximum(lengths, 1)[:, None]
    return {
        "entropy": entropy(alpha[written]),
        "beta": np.asarray(hypotheses.beta)[:, 0][written],
        "coverage": coverage.ravel(),
    }
