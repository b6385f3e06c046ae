"""Compute captions in NumPy, as the paper's equations state them."""
