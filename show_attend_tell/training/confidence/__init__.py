"""Calibrate the confidence of a trained model's captions."""
