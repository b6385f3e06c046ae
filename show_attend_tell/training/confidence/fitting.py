"""Fit the parts of a calibration: the training photos, and logistic regressions."""

import numpy as np

from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.inference.confidence import PhotoSpace, describe_photos
from show_attend_tell.runtime.errors import CalibrationError
from show_attend_tell.runtime.progress import progress_bar

DIRECTIONS = 128  # k
_WORD_RIDGE = 0.05  # of the regressions of words on z, whose variance is 1
_LEAST_SHARE, _MOST_SHARE = 1 / 300, 0.3  # of photos with a content word
_BATCH = 64
_STEPS = 50  # of Newton's method; about eight are needed
_TOLERANCE = 1e-10  # of the largest change of a coefficient


def describe_split(
    reader: FeatureReader, data: Split, grid: tuple[int, int], shown: bool = True
) -> np.ndarray:
    """Return g of all photos of a split, (N, 3 D); features are read in batches."""
    parts = []
    with progress_bar(len(data.rows), "photo", data.name, shown=shown) as bar:
        for start in range(0, len(data.rows), _BATCH):
            rows = data.rows[start : start + _BATCH]
            parts.append(describe_photos(reader.read(rows), grid))
            bar.update(len(rows))
    return np.concatenate(parts)


def fit_photo_space(
    g: np.ndarray, captions: list, vocabulary: Vocabulary, grid: tuple[int, int]
) -> PhotoSpace:
    """Fit the distribution of the training photos.

    Args:
        g: from :func:`describe_split`, (N, G).
        captions: tokenized captions of each photo.
        vocabulary: the captioner's.
        grid: (rows, columns) of the annotations.

    Raises:
        CalibrationError: there are too few photos, or no content word.
    """
    N, G = g.shape
    centred = g - g.mean(axis=0)
    # (G, N) (N, G) -> (G, G); ascending order
    variances, directions = np.linalg.eigh(centred.T @ centred / N)
    k = int(min(DIRECTIONS, N // 4, (variances > 1e-6 * variances[-1]).sum()))
    words, present = _content_words(captions, vocabulary)
    if not k or not len(words):
        raise CalibrationError(
            "the training split must have at least 4 different photos and a word in "
            f"less than {_MOST_SHARE:.0%} of them. Received: {N} photos, {len(words)} "
            "such words; prepare more photos"
        )
    components = directions[:, ::-1][:, :k].astype(np.float64)  # (G, k)
    variances = variances[::-1][:k].astype(np.float64)
    z = centred @ components / np.sqrt(variances)  # (N, k)
    shares = present.mean(axis=0)  # (V,)
    # z has variance 1 and no correlations: the normal equations are diagonal.
    weights = z.T @ (present - shares) / (N * (1 + _WORD_RIDGE))  # (k, V)
    D = G // 3
    layout = (g[:, :D] - g[:, -D:]).mean(axis=0)
    return PhotoSpace(
        grid, g.mean(axis=0), components, variances, layout, words, shares, weights
    )


def _content_words(
    captions: list, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids (V,) of content words, and their presence (N, V) of 0 and 1."""
    index = {word: k for k, word in enumerate(vocabulary.words)}
    present = np.zeros((len(captions), len(index)), np.float32)
    for row, of_photo in enumerate(captions):
        for word in set().union(*of_photo):
            if word in index:
                present[row, index[word]] = 1
    present[:, : len(SPECIAL)] = 0
    shares = present.mean(axis=0)
    words = np.flatnonzero((shares >= _LEAST_SHARE) & (shares <= _MOST_SHARE))
    return words, present[:, words].astype(np.float64)


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
