"""CIDEr of single captions against a fixed corpus, fast enough to train by.

pycocoevalcap's scorer takes document frequencies from the captions it scores, all at
once; a reward needs those of the training captions whatever the batch. The formula is
the same CIDEr-D (Vedantam et al., CVPR 2015, Sec. 4 and 6): clipped counts and a
Gaussian penalty on the length's difference.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

ORDERS = 4  # n-grams of 1 to 4 words
SIGMA = 6.0  # of the penalty


class _Vector(NamedTuple):
    """The tf-idf weights of one caption."""

    weights: list[dict[tuple, float]]  # one dict for each order
    norms: list[float]
    length: int


class CiderReward:
    """Scores captions against the references of their photo.

    The references end in a word of their own, :attr:`END`; a caption that stops where
    a sentence does should carry it too.

    Args:
        references: for each photo its tokenized captions; their document frequencies
            are used.
    """

    END: ClassVar[str] = "<end>"

    def __init__(self, references: Sequence[Sequence[Sequence[str]]]):
        counts = [
            [_ngrams([*words, self.END]) for words in captions if words]
            for captions in references
        ]
        frequency = Counter()
        for captions in counts:
            frequency.update(set().union(*captions))
        photos = math.log(len(references))
        self._idf = {ngram: photos - math.log(n) for ngram, n in frequency.items()}
        self._unseen = photos
        self._references = [[self._vector(c) for c in captions] for captions in counts]

    def __call__(self, photo: int, words: Sequence[str]) -> float:
        """Return the CIDEr of a caption, 0 to 10.

        Args:
            photo: position in the references.
            words: of the caption, with :attr:`END` if it has ended.
        """
        vector, references = self._vector(_ngrams(words)), self._references[photo]
        total = sum(_similarity(vector, reference) for reference in references)
        return total / max(len(references), 1)

    def _vector(self, counts: Counter) -> _Vector:
        weights = [{} for _ in range(ORDERS)]
        for ngram, count in counts.items():
            idf = self._idf.get(ngram, self._unseen)
            weights[len(ngram) - 1][ngram] = count * idf
        norms = [math.sqrt(sum(w * w for w in order.values())) for order in weights]
        length = sum(n for ngram, n in counts.items() if len(ngram) == 1)
        return _Vector(weights, norms, length)


def _ngrams(words: Sequence[str]) -> Counter:
    return Counter(
        tuple(words[i : i + order])
        for order in range(1, ORDERS + 1)
        for i in range(len(words) - order + 1)
    )


def _similarity(caption: _Vector, reference: _Vector) -> float:
    """Return 10 times the mean over orders of the clipped cosines, penalised."""
    total = 0.0
    for order in range(ORDERS):
        theirs = reference.weights[order]
        product = sum(
            min(weight, theirs[ngram]) * theirs[ngram]
            for ngram, weight in caption.weights[order].items()
            if ngram in theirs
        )
        if product:
            total += product / (caption.norms[order] * reference.norms[order])
    difference = caption.length - reference.length
    return 10 * total / ORDERS * math.exp(-(difference**2) / (2 * SIGMA**2))
