"""Scores of captions against references; never imports TensorFlow.

BLEU, ROUGE-L and CIDEr come from pycocoevalcap's scorers, METEOR from its jar under
our own supervision, SPICE on request only.
"""

from show_attend_tell.evaluation.metrics.report import Report
from show_attend_tell.evaluation.metrics.reward import CiderReward
from show_attend_tell.evaluation.metrics.scoring import score
from show_attend_tell.evaluation.metrics.validation import validation_scores

__all__ = ["CiderReward", "MetricsError", "Report", "score", "validation_scores"]
