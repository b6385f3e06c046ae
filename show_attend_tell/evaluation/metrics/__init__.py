"""Score captions against references; TensorFlow is never imported.

BLEU, ROUGE-L and CIDEr are computed by pycocoevalcap's scorers, METEOR and, on request,
SPICE by its Java programs.
"""
