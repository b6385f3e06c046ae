"""Models beside the captioner that attend to parts of a picture.

``ram/`` and ``draw/`` have one model each and do not import each other. The modules of
this folder are what their trainings share; ``classification/`` trains and measures every
classifier, that of ``draw/`` too.
"""
