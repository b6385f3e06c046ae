"""Captions of a split, their scores and what attention looked at."""
