"""Classify pictures by glimpses: the recurrent attention model, arXiv:1406.6247."""
