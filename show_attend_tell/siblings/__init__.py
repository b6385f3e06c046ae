"""Models beside the captioner that attend to parts of a picture.

``ram/`` and ``draw/`` have one model each and do not import each other. Their trainings
share the modules of this folder; ``classification/`` trains and measures every
classifier, that of ``draw/`` too.
"""
