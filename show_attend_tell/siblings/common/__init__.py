"""Layers, training, evaluation and services that the plug-ins share."""
