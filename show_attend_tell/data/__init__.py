"""Manifest, vocabulary, features and photos: what a captioner is trained on."""
