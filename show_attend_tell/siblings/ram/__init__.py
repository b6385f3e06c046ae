"""Classify pictures by glimpses: the recurrent attention model, arXiv:1406.6247.

The task ``classify`` has two other kinds of models to compare it with: classifiers of
whole pictures, and one that reads with DRAW's window.
"""
