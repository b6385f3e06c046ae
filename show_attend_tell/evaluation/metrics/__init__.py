"""Score captions against references; TensorFlow is never imported.

BLEU, ROUGE-L and CIDEr are computed by pycocoevalcap's scorers, METEOR and, on request,
SPICE by its Java programs.
"""

from show_attend_tell.evaluation.metrics.reward import CiderReward
from show_attend_tell.evaluation.metrics.scoring import (
    ScoringResult,
    score,
    validation_scores,
)

__all__ = ["CiderReward", "ScoringResult", "score", "validation_scores"]
