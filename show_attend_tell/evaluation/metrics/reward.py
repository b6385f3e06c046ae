"""Compute the reward of single captions: CIDEr against a fixed corpus, and additions.

pycocoevalcap's scorer counts document frequencies in the references of the captions
that it scores; a reward needs the frequencies of all training captions. The
formula is the same CIDEr-D (Vedantam et al., CVPR 2015, Sec. 4 and 6): clipped counts
and a Gaussian penalty on the difference of lengths.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

ORDERS = 4  # n-grams of 1 to 4 words
# Words that name a person, in captions without punctuation and in lower case. "Couple"
# is not among them ("a couple of zebras"), nor "pitcher", "male" or "mother" ("a mother
# bear").
PEOPLE = frozenset(
    "adult adults athlete athletes audience babies baby batter batters bicyclist "
    "bicyclists biker bikers boy boys bride catcher child children cowboy cowboys "
    "crowd crowds cyclist cyclists everyone friends girl girls groom guy guys hiker "
    "hikers kid kids ladies lady man men motorcyclist motorcyclists officer "
    "officers pedestrian pedestrians people person player players referee rider "
    "riders skateboarder skateboarders skier skiers snowboarder snowboarders "
    "soldier soldiers someone spectators surfer surfers teenager teenagers toddler "
    "toddlers umpire woman women worker workers".split()
)
SIGMA = 6.0  # standard deviation of the length penalty, in words


def names_people(words: Sequence[str]) -> bool:
    """Return whether a caption, as words in lower case, has one of :data:`PEOPLE`."""
    return not PEOPLE.isdisjoint(words)


class _Vector(NamedTuple):
    """The tf-idf weights of one caption."""

    weights: list[dict[tuple, float]]  # one dict for each order
    norms: list[float]
    length: int


class CiderReward:
    """Compute the CIDEr of a caption against the references of its photo.

    Each reference ends in the token :attr:`END`; a complete caption must end in it
    too, so that a caption cut off before the end of its sentence scores less.

    Args:
        references: tokenized captions of each photo; document frequencies are counted
            in them.
    """

    END: ClassVar[str] = "<end>"

    def __init__(self, references: Sequence[Sequence[Sequence[str]]]):
        counts = [
            [_ngrams([*words, self.END]) for words in captions if words]
            for captions in references
        ]
        frequency = Counter()
        for captions in counts:
            # A photo counts once, however many of its references have the n-gram.
            frequency.update(set().union(*captions))
        photos = math.log(len(references))
        # log(N / df); an unseen n-gram counts as one that a single photo has.
        self._idf = {ngram: photos - math.log(n) for ngram, n in frequency.items()}
        self._unseen = photos
        self._references = [[self._vector(c) for c in captions] for captions in counts]

    def __call__(self, photo: int, words: Sequence[str]) -> float:
        """Return the CIDEr of a caption, 0 to 10.

        Args:
            photo: index of the photo in the references.
            words: words of the caption, followed by :attr:`END` if it is complete.
        """
        vector = self._vector(_ngrams(words))
        references = self._references[photo]
        total = sum(_similarity(vector, reference) for reference in references)
        return total / max(len(references), 1)

    def _vector(self, counts: Counter) -> _Vector:
        weights = [{} for _ in range(ORDERS)]
        for ngram, count in counts.items():
            idf = self._idf.get(ngram, self._unseen)
            weights[len(ngram) - 1][ngram] = count * idf
        norms = [math.sqrt(sum(w * w for w in order.values())) for order in weights]
        # pycocoevalcap counts the pairs of words: one less than the words, which the
        # difference of two lengths does not show.
        length = sum(n for ngram, n in counts.items() if len(ngram) == 1)
        return _Vector(weights, norms, length)


class Reward:
    """Compute CIDEr + w BLEU-4 - v [the caption names people and no reference does].

    Args:
        references: tokenized captions of each photo.
        bleu: w, the weight of BLEU-4, smoothed as by Lin and Och (ACL 2004).
        people: v, the penalty for a word of :data:`PEOPLE`.
    """

    def __init__(
        self,
        references: Sequence[Sequence[Sequence[str]]],
        bleu: float = 0.0,
        people: float = 0.0,
    ):
        self.cider = CiderReward(references)
        self.bleu = bleu
        self.people = people
        self.references = references

    def __call__(self, photo: int, words: Sequence[str]) -> float:
        """Return the reward of a caption, see :meth:`CiderReward.__call__`."""
        value = self.cider(photo, words)
        references = self.references[photo]
        plain = [word for word in words if word != CiderReward.END]
        if self.bleu and plain:
            from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

            smoothing = SmoothingFunction().method2
            score = sentence_bleu(references, plain, smoothing_function=smoothing)
            value += self.bleu * score
        if (
            self.people
            and names_people(plain)
            and not any(map(names_people, references))
        ):
            value -= self.people
        return value


def _ngrams(words: Sequence[str]) -> Counter:
    return Counter(
        tuple(words[i : i + order])
        for order in range(1, ORDERS + 1)
        for i in range(len(words) - order + 1)
    )


def _similarity(caption: _Vector, reference: _Vector) -> float:
    """Return 10 times the mean clipped cosine over orders, times the penalty."""
    total = 0.0
    for order in range(ORDERS):
        theirs = reference.weights[order]
        # Clipped: a repeated n-gram counts no more often than in the reference.
        product = sum(
            min(weight, theirs[ngram]) * theirs[ngram]
            for ngram, weight in caption.weights[order].items()
            if ngram in theirs
        )
        if product:
            total += product / (caption.norms[order] * reference.norms[order])
    difference = caption.length - reference.length
    return 10 * total / ORDERS * math.exp(-(difference**2) / (2 * SIGMA**2))
