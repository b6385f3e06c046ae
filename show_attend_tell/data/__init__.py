"""Manifest, vocabulary, features and photos: the training data of a captioner."""
