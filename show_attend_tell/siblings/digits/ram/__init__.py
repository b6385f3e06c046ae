"""Classify pictures by glimpses: the recurrent attention model, arXiv:1406.6247.

The task ``classify`` also trains two kinds of models to compare it with: classifiers of
whole pictures, and a classifier that reads with DRAW's window.
"""
