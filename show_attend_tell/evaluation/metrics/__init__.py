"""Score captions against references; TensorFlow is never imported.

BLEU, ROUGE-L and CIDEr are computed by pycocoevalcap's scorers, METEOR and, on request,
SPICE by its Java programs.
"""

from show_attend_tell.evaluation.metrics.bootstrap import Statistic
from show_attend_tell.evaluation.metrics.ngrams import (
    FILE_TOKEN_BLEU,
    file_token_bleu,
)
from show_attend_tell.evaluation.metrics.reward import CiderReward
from show_attend_tell.evaluation.metrics.scoring import (
    ScoringResult,
    score,
    validation_scores,
)

__all__ = [
    "FILE_TOKEN_BLEU",
    "CiderReward",
    "ScoringResult",
    "Statistic",
    "file_token_bleu",
    "score",
    "validation_scores",
]
