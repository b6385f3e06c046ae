"""Compute BLEU, ROUGE-L and CIDEr with pycocoevalcap's scorers.

The arguments of each function are N tokenized captions (words joined by spaces) and the
references of each caption in the same form. Scores are on the library's scale.
"""

from collections.abc import Sequence

from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer
from pycocoevalcap.rouge.rouge import Rouge

Texts = Sequence[str]


def bleu(
    hypotheses: Texts, references: Sequence[Texts]
) -> tuple[list[float], list[float], list[float]]:
    """Compute corpus BLEU with the closest reference length.

    Returns:
        BLEU-1 to 4 with brevity penalty, BLEU-1 to 4 without (as the paper reports),
        and BLEU-4 of each caption with penalty; all 0 to 1.
    """
    scorer = BleuScorer(n=4)
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        scorer += (hypothesis, list(texts))
    with_penalty, each = scorer.compute_score(option="closest")
    # No caption is shorter than references of length 0, so there is no penalty.
    unpenalised = BleuScorer(n=4, special_reflen=0)
    unpenalised += scorer
    without_penalty, _ = unpenalised.compute_score(option="closest")
    return with_penalty, without_penalty, each[3]


def rouge_l(
    hypotheses: Texts, references: Sequence[Texts]
) -> tuple[float, list[float]]:
    """Compute the mean ROUGE-L (beta 1.2) and that of each caption, 0 to 1."""
    scorer = Rouge()
    each = [
        float(scorer.calc_score([hypothesis], texts))
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    return sum(each) / len(each), each


def cider(hypotheses: Texts, references: Sequence[Texts]) -> tuple[float, list[float]]:
    """Compute the mean CIDEr-D and that of each caption, 0 to 10.

    CIDEr-D clips counts and has a Gaussian length penalty with sigma 6. Document
    frequencies are counted in these references: scores of different subsets are not
    comparable, and the score of a single photo is 0.
    """
    scorer = CiderScorer(n=4, sigma=6.0)
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        scorer += (hypothesis, list(texts))
    mean, each = scorer.compute_score()
    return float(mean), each.tolist()
