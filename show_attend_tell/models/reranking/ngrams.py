"""Vectors of captions whose product is the mean cosine of CIDEr.

CIDEr (Vedantam et al., arXiv:1411.5726, Eqs. 1 and 2) compares two captions by the
cosines of their TF-IDF vectors of n-grams, one for each n of 1 to 4, and takes the
mean. Here the four vectors of a caption are one, in which each has the length 1/2.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from show_attend_tell.data.vocabulary import UNKNOWN

ORDERS = 4
Ngram = tuple[int, ...]  # ids of words


def ngrams_of(words: Sequence[int]) -> Counter[Ngram]:
    """Count the n-grams of a caption that contain no unknown word, n from 1 to 4."""
    found = (
        tuple(words[k : k + n])
        for n in range(1, ORDERS + 1)
        for k in range(len(words) - n + 1)
    )
    return Counter(one for one in found if UNKNOWN not in one)


class NgramVectors:
    """The n-grams that are counted, and their weights.

    Attributes:
        ngrams: G n-grams.
        idf: (G,), log(N / number of the N training photos with the n-gram).
    """

    def __init__(self, ngrams: Sequence[Ngram], idf: np.ndarray):
        self.ngrams = tuple(ngrams)
        self.idf = np.asarray(idf, np.float32)
        self._columns = {ngram: k for k, ngram in enumerate(self.ngrams)}

    @classmethod
    def of_photos(cls, photos: Iterable[Iterable[Sequence[int]]], least: int):
        """Return the n-grams of at least `least` photos, given as ids of captions."""
        count, photos_with = 0, Counter()
        for captions in photos:
            count += 1
            photos_with.update({one for words in captions for one in ngrams_of(words)})
        kept = sorted(one for one, df in photos_with.items() if df >= least)
        return cls(kept, [math.log(count / photos_with[one]) for one in kept])

    def vector(self, words: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns and the values of a caption that are not 0."""
        counted = [
            (self._columns[one], times, len(one) - 1)
            for one, times in ngrams_of(words).items()
            if one in self._columns
        ]
        if not counted:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        columns, times, orders = np.array(counted, np.int64).T
        values = times * self.idf[columns]
        squares = np.bincount(orders, values**2, ORDERS)  # (4,)
        lengths = np.sqrt(np.where(squares > 0, squares, 1.0))
        return columns, np.float32(values / lengths[orders] / math.sqrt(ORDERS))
