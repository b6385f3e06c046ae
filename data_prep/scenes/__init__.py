"""Scenes of coloured shapes, drawn by the program."""
