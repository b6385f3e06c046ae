"""Fit the models of a caption's confidence, and measure how well they separate.

The equations are in :mod:`inference.confidence`. The validation photos are in
distribution, other pictures are not. All photos of a set weigh the same, all
out-of-distribution sets weigh the same, and together they have a tenth of the weight.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import scipy.stats

from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.inference.confidence import (
    FAMILIARITY,
    QUALITY,
    STATISTICS,
    Calibration,
    PhotoSpace,
    select,
)
from show_attend_tell.inference.tags import TagCalibration
from show_attend_tell.runtime.errors import ModelFileError

RIDGE = 0.03  # penalty of both regressions
DIRECTIONS = 128  # k
UNLIKE = 0.1  # share of photos that look nothing like the training photos
_WORD_RIDGE = 0.05  # of the regressions of words on z, whose variance is 1
# Of the photos whose captions have a content word.
_MIN_SHARE = 1 / 300
_MAX_SHARE = 0.3
# CIDEr, 0 to 10, from which half of judged captions are right or a slip; see "What a
# confidence means" in experiments/README.md.
_MIN_CIDER = 0.46
_TAG_RIDGE = 1e-3  # penalty of the regression of tags
_STEPS = 50  # of Newton's method; about eight are needed
_TOLERANCE = 1e-10  # of the largest change of a coefficient


def fit_photo_space(
    g: np.ndarray, captions: list, vocabulary: Vocabulary, grid: tuple[int, int]
) -> PhotoSpace:
    """Fit the distribution of the training photos.

    ``g`` is from :func:`inference.confidence.describe_photos`, (N, G), and ``captions``
    are the tokenized captions of each photo.

    Raises:
        ModelFileError: there are too few photos, or no content word.
    """
    N, G = g.shape
    centred = g - g.mean(axis=0)
    # The directions are eigenvectors of the covariance: G is fixed by the encoder,
    # while N grows with the data.
    # (G, N) (N, G) -> (G, G); ascending order
    variances, directions = np.linalg.eigh(centred.T @ centred / N)
    k = int(min(DIRECTIONS, N // 4, (variances > 1e-6 * variances[-1]).sum()))
    words, present = _content_words(captions, vocabulary)
    if not k or not len(words):
        raise ModelFileError(
            "the training split must have at least 4 different photos and a word in "
            f"less than {_MAX_SHARE:.0%} of them. Received: {N} photos, {len(words)} "
            "such words; prepare more photos"
        )
    # The last k directions, by descending variance
    components = directions[:, ::-1][:, :k].astype(np.float64)  # (G, k)
    variances = variances[::-1][:k].astype(np.float64)
    z = centred @ components / np.sqrt(variances)  # (N, k)
    shares = present.mean(axis=0)  # (V,)
    # z has variance 1 and no correlations: the normal equations are diagonal.
    weights = z.T @ (present - shares) / (N * (1 + _WORD_RIDGE))  # (k, V)
    D = G // 3  # g has three bands: top, middle and bottom
    return PhotoSpace(
        grid=grid,
        mean=g.mean(axis=0),
        components=components,
        variances=variances,
        layout=(g[:, :D] - g[:, -D:]).mean(axis=0),
        words=words,
        shares=shares,
        word_weights=weights,
    )


def _content_words(
    captions: list, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids (V,) of content words, and their presence (N, V) of 0 and 1."""
    N = len(captions)
    index = {word: k for k, word in enumerate(vocabulary.words)}
    ids_of = [
        np.array([index[word] for word in set().union(*of_photo) if word in index], int)
        for of_photo in captions
    ]
    ids = np.concatenate(ids_of)
    # A photo counts once for a word, because each entry of `ids_of` is of a set.
    counts = np.bincount(ids, minlength=len(index))
    counts[: len(SPECIAL)] = 0
    shares = counts.astype(np.float32) / np.float32(N)
    words = np.flatnonzero((shares >= _MIN_SHARE) & (shares <= _MAX_SHARE))
    # Of the kept words alone: of the whole vocabulary it would have 3 GB for COCO.
    present = np.zeros((N, len(words)))
    # Id of a word -> its column of `present`, -1 for words that are left out
    columns = np.full(len(index), -1)
    columns[words] = np.arange(len(words))
    rows = np.repeat(np.arange(N), [len(of_photo) for of_photo in ids_of])
    is_kept = columns[ids] >= 0
    present[rows[is_kept], columns[ids[is_kept]]] = 1
    return words, present


def is_probably_right(cider: np.ndarray) -> np.ndarray:
    """Return 1 for captions that are probably right or a slip, 0 for others.

    Args:
        cider: (N,), 0 to 10.
    """
    return (cider >= _MIN_CIDER).astype(np.float64)


def fit_calibration(
    space: PhotoSpace, known: np.ndarray, good: np.ndarray, ood_sets: list[np.ndarray]
) -> Calibration:
    """Fit both logistic regressions.

    Args:
        space: the distribution of the training photos.
        known: statistics of validation photos, (N, 7).
        good: 1 for each of their captions that is right or a slip, 0 for others, (N,);
            NaN where it is not known.
        ood_sets: statistics of the pictures of each out-of-distribution set, (M, 7).
    """
    centre = known.mean(axis=0)
    # A statistic that is equal for all photos must not divide by 0.
    scale = np.maximum(known.std(axis=0), 1e-6)
    unfitted = Calibration(space, centre, scale, np.zeros(0), np.zeros(0))
    # In distribution or not: the known photos come first.
    x = unfitted.standardise(np.concatenate([known, *ood_sets]))
    labels = (np.arange(len(x)) < len(known)).astype(np.float64)
    # The known photos weigh 1 together, and each of the S sets odds / S. So the others
    # have a share of odds / (1 + odds) = UNLIKE.
    weights = [np.full(len(known), 1 / len(known))]
    odds = UNLIKE / (1 - UNLIKE)
    for ood_set in ood_sets:
        M = len(ood_set)
        weights.append(np.full(M, odds / M / len(ood_sets)))
    familiarity = fit_logistic(
        select(x, FAMILIARITY), labels, np.concatenate(weights), RIDGE
    )
    unfitted = dataclasses.replace(unfitted, familiarity=familiarity)
    return fit_quality(unfitted, known, good)


def fit_quality(
    calibration: Calibration, known: np.ndarray, good: np.ndarray
) -> Calibration:
    """Fit the second regression, of right captions and slips against wrong ones.

    The first one remains as it is. Other arguments are those of
    :func:`fit_calibration`.
    """
    # Only the columns of QUALITY are standardised anew: the coefficients of the first
    # regression belong to the standardisation that it was fitted with.
    centre = calibration.centre.copy()
    scale = calibration.scale.copy()
    columns = [STATISTICS.index(name) for name in QUALITY]
    centre[columns] = known[:, columns].mean(axis=0)
    scale[columns] = np.maximum(known[:, columns].std(axis=0), 1e-6)
    calibration = dataclasses.replace(calibration, centre=centre, scale=scale)
    judged = ~np.isnan(good)
    x = select(calibration.standardise(known[judged]), QUALITY)
    quality = fit_logistic(x, good[judged], np.ones(len(x)), RIDGE)
    return dataclasses.replace(calibration, quality=quality)


def fit_tag_calibration(statistics: np.ndarray, named: np.ndarray) -> TagCalibration:
    """Fit the probability that a person names a noun.

    Args:
        statistics: of nouns of validation photos, (N, 4), see :mod:`inference.tags`.
        named: whether a person names each, (N,) bool.
    """
    centre = statistics.mean(axis=0)
    scale = np.maximum(statistics.std(axis=0), 1e-6)
    x = (statistics - centre) / scale
    y = named.astype(np.float64)
    fitted = fit_logistic(x, y, np.ones(len(x)), _TAG_RIDGE)
    if fitted[0] < 0:  # of few photos, by chance: a higher score never lowers it
        x[:, 0] = 0
        fitted = fit_logistic(x, y, np.ones(len(x)), _TAG_RIDGE)
    # The standardisation becomes part of the coefficients:
    # w (x - c) / s + b = (w / s) x + (b - (w / s) c)
    weights = fitted[:-1] / scale
    constant = fitted[-1] - weights @ centre
    return TagCalibration(np.round(np.append(weights, constant), 6))


def fit_logistic(
    statistics: np.ndarray, labels: np.ndarray, weights: np.ndarray, ridge: float
) -> np.ndarray:
    """Fit a logistic regression by Newton's method.

    Minimises, over w and b, with z_i = w x_i + b,

        sum_i s_i [log(1 + exp(z_i)) - y_i z_i] / sum_i s_i + ridge / 2 |w|^2

    Args:
        statistics: x, (N, F), standardised.
        labels: y, (N,) from 0 to 1.
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
        # 1 / (1 + exp(-z)) without overflow
        p = 0.5 * (1 + np.tanh(0.5 * (x @ coefficients)))  # (N,)
        gradient = x.T @ (shares * (p - labels)) + penalty * coefficients
        # p (1 - p) underflows for groups that are far apart, which would leave the
        # hessian singular in b, which has no penalty.
        curvature = shares * np.maximum(p * (1 - p), 1e-9)  # (N,)
        # (F + 1, N) (N, F + 1) -> (F + 1, F + 1)
        hessian = (x * curvature[:, None]).T @ x + np.diag(penalty)
        change = np.linalg.solve(hessian, gradient)
        coefficients -= change
        if np.abs(change).max() < _TOLERANCE:
            break
    return coefficients


def measure_familiarity(
    space: PhotoSpace,
    known: np.ndarray,
    good: np.ndarray,
    ood_sets: Mapping[str, np.ndarray],
    sources: Mapping[str, np.ndarray],
    half: np.ndarray,
) -> dict[str, float]:
    """Measure with models that saw neither the photos nor the set they judge.

    Models fitted on one half of the validation photos judge the other half, and models
    fitted without a set judge this set.

    Args:
        space: see :func:`fit_calibration`, also for `known` and `good`.
        known: statistics of validation photos.
        good: 1 for each of their captions that is right or a slip, else 0.
        ood_sets: statistics of at least two out-of-distribution sets, (M, 7) each.
        sources: for sets made of validation photos, the row of each photo, (M,).
        half: (N,) bool, the first half.

    Returns:
        AUC of the confidence between validation photos and each set, by its name.
    """
    auc: dict[str, list[float]] = {name: [] for name in ood_sets}
    for fitted in (half, ~half):
        tested = ~fitted
        for name, outside in ood_sets.items():
            others = [other for key, other in ood_sets.items() if key != name]
            model = fit_calibration(space, known[fitted], good[fitted], others)
            if name in sources:  # made of validation photos: of the tested ones
                outside = outside[tested[sources[name]]]
            inside = model.of_statistics(known[tested])
            auc[name].append(rank_auc(inside, model.of_statistics(outside)))
    return {name: round(float(np.mean(values)), 4) for name, values in auc.items()}


def measure_quality(
    calibration: Calibration, known: np.ndarray, good: np.ndarray, half: np.ndarray
) -> float:
    """Compute the AUC of the confidence between good captions and others.

    Second regressions fitted on one half of the photos judge the other half; `good` is
    known for all photos. The arguments are those of :func:`fit_quality` and
    :func:`measure_familiarity`.
    """
    areas = []
    for fitted in (half, ~half):
        model = fit_quality(calibration, known[fitted], good[fitted])
        confidence = model.of_statistics(known[~fitted])
        better = good[~fitted] > 0
        areas.append(rank_auc(confidence[better], confidence[~better]))
    return round(float(np.mean(areas)), 4)


def rank_auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Compute the area under the ROC curve.

    The share of pairs (one value of each group) in which the positive value, which
    should be the larger, is larger; equal values count half.

    Raises:
        ValueError: a group is empty.
    """
    if not len(positive) or not len(negative):
        raise ValueError(
            "`positive` and `negative` must not be empty. Received: "
            f"{len(positive)} and {len(negative)} values"
        )
    # U counts these pairs. Its p-value is not used, and the exact one is slow.
    larger = scipy.stats.mannwhitneyu(positive, negative, method="asymptotic").statistic
    return float(larger / (len(positive) * len(negative)))
