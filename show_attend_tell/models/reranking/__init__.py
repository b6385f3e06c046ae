"""Rank the hypotheses of a beam by their predicted CIDEr too."""
