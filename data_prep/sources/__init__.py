"""Readers of one data set each; all return photos and what was wrong."""
