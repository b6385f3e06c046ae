"""Score words: whole words, characters, and words of each length."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rapidfuzz.distance import Levenshtein

_NORMAL = 1.959964  # quantile of 97.5 % of the normal distribution


@dataclass(frozen=True)
class WordScores:
    """The scores of N words, in percent; capitals count as small letters."""

    word_accuracy: float  # words that are exactly right
    interval: tuple[float, float]  # 95 % interval of the word accuracy, Wilson's
    similarity: float  # mean of 1 - edit distance / length of the longer word
    # 1 - sum of edit distances / characters of the right words; at least 0
    character_accuracy: float
    # characters of the right word -> word accuracy and number of words
    by_length: dict[int, tuple[float, int]]


def score_words(words: Sequence[str], right: Sequence[str]) -> WordScores:
    """Score words against the right words.

    Args:
        words: the words that a model read, in small letters.
        right: the right words, in small letters, of one character or more.
    """
    pairs = list(zip(words, right, strict=True))
    exact = np.array([word == answer for word, answer in pairs])
    distances = np.array([Levenshtein.distance(*pair) for pair in pairs])
    longest = np.array([max(map(len, pair)) for pair in pairs])
    lengths = np.array([len(word) for word in right])
    wrong = min(1.0, distances.sum() / lengths.sum())
    by_length = {
        int(n): (100 * float(exact[lengths == n].mean()), int((lengths == n).sum()))
        for n in np.unique(lengths)
    }
    return WordScores(
        word_accuracy=100 * float(exact.mean()),
        interval=wilson_interval(int(exact.sum()), len(exact)),
        similarity=100 * float(np.mean(1 - distances / longest)),
        character_accuracy=100 * float(1 - wrong),
        by_length=by_length,
    )


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of independent trials, in percent.

    Wilson's score interval, JASA 22 (1927), which stays inside 0 and 100.

    Args:
        right: number of successes.
        count: number of trials.
    """
    p, z2 = right / count, _NORMAL**2
    centre = (p + z2 / (2 * count)) / (1 + z2 / count)
    half = _NORMAL * np.sqrt(p * (1 - p) / count + z2 / (4 * count**2))
    half = half / (1 + z2 / count)
    return 100 * max(0.0, float(centre - half)), 100 * min(1.0, float(centre + half))
