"""Compute BLEU, ROUGE-L and CIDEr with pycocoevalcap's scorers.

The arguments of the functions of a metric are N tokenized captions (words joined by
spaces) and the references of each caption in the same form. Scores are in percent.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer
from pycocoevalcap.rouge.rouge import Rouge

from show_attend_tell.data.vocabulary import tokenize_as_written
from show_attend_tell.evaluation.metrics.bootstrap import (
    Scored,
    Statistic,
    mean_score,
)

Texts = Sequence[str]

ORDERS = 4
# of pycocoevalcap's BleuScorer, against division by zero
_TINY = 1e-15
_SMALL = 1e-9

PERIOD = "."
SUFFIX = "-files"  # of the names of these scores
FILE_TOKEN_BLEU = tuple(
    f"BLEU-{n}{penalty}{SUFFIX}" for penalty in ("", "-no-bp") for n in range(1, 5)
)


def bleu(
    hypotheses: Texts, references: Sequence[Texts], suffix: str = ""
) -> dict[str, Scored]:
    """Compute corpus BLEU with the closest reference length.

    The statistics of a caption are its number of n-grams of each order, how many of
    them match, its length, and the length of the closest reference.

    Returns:
        ``BLEU-1`` to ``BLEU-4``, and the same with ``-no-bp``, without brevity penalty
        (as the paper reports); every name ends in `suffix`.
    """
    scorer = BleuScorer(n=ORDERS)
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        # A tuple is one more caption; below, += of a scorer takes over all its counts.
        scorer += (hypothesis, list(texts))
    with_penalty, _ = scorer.compute_score(option="closest")
    # No caption is shorter than references of length 0, so there is no penalty.
    unpenalised = BleuScorer(n=ORDERS, special_reflen=0)
    unpenalised += scorer
    without_penalty, _ = unpenalised.compute_score(option="closest")
    rows = []
    for counts in scorer.ctest:
        length = counts["testlen"]
        # As the scorer chooses it: of two as close, the shorter.
        _, closest = min((abs(each - length), each) for each in counts["reflen"])
        rows.append([*counts["correct"], *counts["guess"], length, closest])
    values = np.array(rows, np.float64)  # (N, 10)
    return {
        f"BLEU-{order}{ending}{suffix}": Scored(
            100 * float(corpus[order - 1]),
            # mypy takes no named tuple for a function, though this one has __call__.
            Statistic(values, _BleuOfSums(order, penalty=not ending)),  # type: ignore[arg-type]
        )
        for ending, corpus in (("", with_penalty), ("-no-bp", without_penalty))
        for order in range(1, ORDERS + 1)
    }


class _BleuOfSums(NamedTuple):
    """BLEU of one order in percent, of counts summed over captions."""

    order: int
    penalty: bool  # whether the brevity penalty is applied

    def __call__(self, sums: np.ndarray, /) -> np.ndarray:
        """Map (..., 10) sums of the statistics of :func:`bleu` to (...) scores."""
        matches = sums[..., : self.order]
        total = sums[..., ORDERS : ORDERS + self.order]
        precisions = (matches + _TINY) / (total + _SMALL)
        score = np.prod(precisions, axis=-1) ** (1 / self.order)
        if self.penalty:
            ratio = (sums[..., -2] + _TINY) / (sums[..., -1] + _SMALL)
            score = score * np.exp(np.minimum(1 - 1 / ratio, 0))
        percent: np.ndarray = 100 * score
        return percent


def file_token_bleu(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Scored], bool]:
    """Compute BLEU of the tokens in the files, probably as Table 1 of the paper does.

    The authors' scripts pass the tokens of their files to the scorer: the final period
    is a word, and there is no PTB tokenizer, which drops it. A period that ends the
    caption and every reference raises BLEU. That Table 1 was scored so is likely, not
    proven: the script that made it was not published. Here both sides are lower case.

    A captioner trained without punctuation writes no period; each of its captions then
    gets a period.

    Args:
        captions: photo id -> caption.
        references: photo id -> raw captions of the same photos, not all empty.

    Returns:
        :data:`FILE_TOKEN_BLEU`, nothing if no reference ends with a period; and whether
        periods were appended to the captions.
    """
    words = [tokenize_as_written(captions[photo]) for photo in captions]
    texts = [list(map(tokenize_as_written, references[photo])) for photo in captions]
    # References without a word are left out, as in scoring.score.
    texts = [list(filter(None, of_photo)) for of_photo in texts]
    appended = not any(tokens[-1:] == [PERIOD] for tokens in words)
    if not any(tokens[-1] == PERIOD for of_photo in texts for tokens in of_photo):
        return {}, appended
    if appended:
        words = [[*tokens, PERIOD] for tokens in words]
    hypotheses = [" ".join(tokens) for tokens in words]
    joined = [[" ".join(tokens) for tokens in of_photo] for of_photo in texts]
    return bleu(hypotheses, joined, SUFFIX), appended


def rouge_l(hypotheses: Texts, references: Sequence[Texts]) -> Scored:
    """Compute the mean ROUGE-L (beta 1.2)."""
    scorer = Rouge()
    each = [
        float(scorer.calc_score([hypothesis], texts))
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    return mean_score(each)


def cider(hypotheses: Texts, references: Sequence[Texts]) -> Scored:
    """Compute the mean CIDEr-D; 0 to 1,000, as its usual scale is 0 to 10.

    CIDEr-D clips counts and has a Gaussian length penalty with sigma 6. Document
    frequencies are counted in these references: scores of different subsets are not
    comparable, and the score of a single photo is 0.
    """
    scorer = CiderScorer(n=ORDERS, sigma=6.0)
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        scorer += (hypothesis, list(texts))
    mean, each = scorer.compute_score()
    return mean_score(each.tolist(), float(mean))
