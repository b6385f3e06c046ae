"""Fit a small logistic regression, and measure its ranking and its calibration."""

import numpy as np

_STEPS = 50  # of Newton's method; about eight are needed
_TOLERANCE = 1e-10  # of the largest change of a coefficient


def fit_logistic(
    statistics: np.ndarray, labels: np.ndarray, weights: np.ndarray, ridge: float
) -> np.ndarray:
    """Fit a logistic regression by Newton's method.

    Minimises, over w and b, with z_i = w x_i + b,

        sum_i s_i [log(1 + exp(z_i)) - y_i z_i] / sum_i s_i + ridge / 2 |w|^2

    Args:
        statistics: x, (N, F), standardised.
        labels: y, (N,) of 0 and 1.
        weights: s, (N,), positive.
        ridge: penalty of the coefficients, above 0; b has none.

    Returns:
        (F + 1,) float64, w and then b.
    """
    N, F = statistics.shape
    x = np.concatenate([statistics, np.ones((N, 1))], axis=1)  # (N, F) -> (N, F + 1)
    shares = weights / weights.sum()
    penalty = np.append(np.full(F, ridge), 0.0)
    coefficients = np.zeros(F + 1)
    for _ in range(_STEPS):
        p = sigmoid(x @ coefficients)  # (N,)
        gradient = x.T @ (shares * (p - labels)) + penalty * coefficients
        curvature = shares * np.maximum(p * (1 - p), 1e-9)  # (N,)
        # (F + 1, N) (N, F + 1) -> (F + 1, F + 1)
        hessian = (x * curvature[:, None]).T @ x + np.diag(penalty)
        change = np.linalg.solve(hessian, gradient)
        coefficients -= change
        if np.abs(change).max() < _TOLERANCE:
            break
    return coefficients


def sigmoid(z: np.ndarray) -> np.ndarray:
    """Compute 1 / (1 + exp(-z)) without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(z, np.float64)))


def rank_auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Compute the area under the ROC curve.

    The share of pairs (one value of each group) in which the positive value is
    larger; equal values count half.

    Args:
        positive: (P,) values of the group that should be larger, P > 0.
        negative: (N,) values of the other group, N > 0.
    """
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left")  # (P,)
    not_above = np.searchsorted(ordered, positive, "right")  # (P,)
    return float((below + not_above).mean() / (2 * len(ordered)))


def reliability(
    probabilities: np.ndarray, labels: np.ndarray, weights: np.ndarray, bins: int = 10
) -> list[tuple[float, float, int]]:
    """Compare probabilities with frequencies in bins of equal width.

    Args:
        probabilities: (N,) in [0, 1].
        labels: (N,) of 0 and 1.
        weights: (N,), positive.
        bins: number of bins.

    Returns:
        For each bin that is not empty: weighted means of probability and label, count.
    """
    index = np.minimum((probabilities * bins).astype(int), bins - 1)  # (N,)
    table = []
    for k in np.unique(index):
        p, y, s = (x[index == k] for x in (probabilities, labels, weights))
        table.append((float(p @ s / s.sum()), float(y @ s / s.sum()), len(p)))
    return table
