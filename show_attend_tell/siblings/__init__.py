"""Models beside the captioner that attend to parts of a picture.

``ram/`` classifies digits, ``draw/`` generates them, and ``words/`` reads words. Each
folder has its model, ``task`` (building and loading it), ``training``, ``evaluation``
and ``figures``. They share the modules of this folder; only ``ram/`` imports another
model, the classifier that reads with DRAW's window.
"""
