"""Classify digits by glimpses (RAM) and generate them step by step (DRAW)."""
