"""Compute the tags of a photo: the nouns of the candidates of its beam search.

With c_1 .. c_W the candidates of a photo, the score of a noun n is

    s = sum_w p_w [n in c_w],      p_w = p(c_w) / sum_v p(c_v)

and its confidence is a logistic regression, times a factor for unlike photos:

    score      log (s + e) / (1 - s + e), e = 0.001
    expected   log p_n, see p_w in :mod:`inference.confidence`; 0 for other nouns
    share      log f_n, f_n the share of training photos with n in a caption; as above
    other      1 for a noun that is no content word there, else 0

    confidence = P(photo like the training photos) sigmoid(w . statistics + b)

with w_score >= 0. The regression is fitted on validation photos to whether one of the
captions by people names the noun. That is a lower bound of the share that is right,
since people name few of the things that they see.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from show_attend_tell.data.nouns import nouns_of
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.reference.hypotheses import Hypotheses

STATISTICS = ("score", "expected", "share", "other")
_EPSILON = 1e-3
_MAX_COEFFICIENT = 1e6


@dataclass(frozen=True)
class Tag:
    """A noun that describes a photo.

    Attributes:
        name: the noun, in lower case and in the singular.
        confidence: probability that a person names it, 0 to 1.
    """

    name: str
    confidence: float


@dataclass(frozen=True, eq=False)
class TagCalibration:
    """Convert the statistics of nouns to probabilities.

    Attributes:
        coefficients: of :data:`STATISTICS`, then the constant, (5,); the first is not
            negative.
    """

    coefficients: np.ndarray

    def __call__(self, statistics: np.ndarray) -> np.ndarray:
        """Return the probabilities (N,) of statistics (N, 4)."""
        z = self.log_odds(statistics)
        p: np.ndarray = 0.5 * (1 + np.tanh(0.5 * z))  # 1 / (1 + exp(-z)), no overflow
        return p

    def log_odds(self, statistics: np.ndarray) -> np.ndarray:
        """Return the log odds (N,) of statistics (N, 4)."""
        z: np.ndarray = statistics @ self.coefficients[:-1] + self.coefficients[-1]
        return z

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON."""
        return {
            "statistics": list(STATISTICS),
            "coefficients": self.coefficients.tolist(),
        }


def tag_calibration_of(values: object) -> TagCalibration:
    """Return the calibration of :meth:`TagCalibration.to_dict`'s values.

    Raises:
        ValueError: they are malformed, not finite or of another version, or a higher
            score would lower the probability.
    """
    if not isinstance(values, dict) or values.get("statistics") != list(STATISTICS):
        raise ValueError("the statistics of `tags` are those of another version")
    numbers = values.get("coefficients")
    if not isinstance(numbers, list) or len(numbers) != len(STATISTICS) + 1:
        raise ValueError(f"`tags` must have {len(STATISTICS) + 1} coefficients")
    for number in numbers:
        # True and false of JSON are integers in Python.
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        # In this form NaN is refused too.
        if not is_number or not abs(number) <= _MAX_COEFFICIENT:
            raise ValueError("the coefficients of `tags` must be finite")
    if numbers[0] < 0:
        raise ValueError("the coefficient of the score of `tags` must not be negative")
    return TagCalibration(np.array(numbers, np.float64))


def noun_scores(hypotheses: Hypotheses, vocabulary: Vocabulary) -> dict[str, float]:
    """Return the score of each noun of a photo's candidates, the highest first.

    Args:
        hypotheses: W candidates; every field is (W, ...).
        vocabulary: the captioner's.

    Returns:
        noun -> s, 0 to 1; equal scores in alphabetical order. Empty if no candidate
        has a noun.
    """
    # Absent candidates have a log p of -inf and length 0.
    present = np.flatnonzero(hypotheses.lengths)  # a beam may find fewer than W
    if not len(present):
        return {}
    log_probs = np.asarray(hypotheses.log_probs, np.float64)[present]
    # The largest is taken off first, or all shares of improbable candidates are 0 / 0.
    p = np.exp(log_probs - log_probs.max())
    p /= p.sum()
    scores: dict[str, float] = {}
    for w, share in zip(present, p.tolist(), strict=True):
        words = vocabulary.decode(hypotheses.tokens[w].tolist())
        for noun in nouns_of(words):
            scores[noun] = scores.get(noun, 0.0) + share
    # Rounded, so that the order does not depend on the last bits of a sum.
    rounded = {noun: round(min(score, 1.0), 9) for noun, score in scores.items()}
    return dict(sorted(rounded.items(), key=lambda item: (-item[1], item[0])))


def noun_statistics(
    scores: Mapping[str, float], expected: Mapping[str, tuple[float, float]]
) -> np.ndarray:
    """Return the statistics of nouns, (N, 4), in the order of :data:`STATISTICS`.

    Args:
        scores: s of each noun, from :func:`noun_scores`.
        expected: (p_n, f_n) of content words, both positive.
    """
    rows = np.zeros((len(scores), len(STATISTICS)))
    for row, (noun, s) in zip(rows, scores.items(), strict=True):
        # e keeps the log odds of a noun of all or of no candidates finite.
        row[0] = np.log((s + _EPSILON) / (1 - s + _EPSILON))
        if noun in expected:
            row[1:3] = np.log(expected[noun])
        else:
            row[3] = 1
    return rows


def tags_of(names: Iterable[str], probabilities: np.ndarray) -> tuple[Tag, ...]:
    """Return the tags of a photo, the most probable first.

    Args:
        names: N nouns.
        probabilities: confidence of each, (N,); it is rounded to six decimals.
    """
    rounded = np.round(probabilities, 6).tolist()
    tags = [Tag(*pair) for pair in zip(names, rounded, strict=True)]
    # By name where confidences are equal, for a fixed order.
    tags.sort(key=lambda tag: (-tag.confidence, tag.name))
    return tuple(tags)
