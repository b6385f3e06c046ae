"""Train captioners: the loop, its objectives, checkpoints and logs.

The objectives are the likelihood of human captions (``maximum_likelihood``, the
paper's), the CIDEr of generated captions (``self_critical``) and the word
probabilities of other models (``distillation``).
"""
