"""Captions of photos: batches, results, figures and pages."""
