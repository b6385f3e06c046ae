"""Models beside the captioner that attend to parts of a picture.

``ram/`` classifies digits, ``draw/`` generates them, and ``words/`` reads words. Each
folder has its ``model``, ``training``, ``evaluation`` and ``figures``. They share the
modules of this folder; ``models`` builds and loads all models. Only ``ram/`` imports
another folder, for the classifier that reads with DRAW's window.
"""
