"""Generate pictures step by step: DRAW, arXiv:1502.04623."""
