"""Render words that look like words in photos, to train a reader on."""
