"""Read the word of a crop: recursive convolutions and a decoder with attention.

The model of Lee and Osindero, arXiv:1603.03101: :mod:`convolutions` and :mod:`encoder`
turn a crop into annotations, :mod:`cells` and :mod:`decoder` these into characters, and
:mod:`model` joins them. :mod:`generation` finds words by the search of captions,
:mod:`training` and :mod:`evaluation` are those of ``task = "read"``, and :mod:`reading`
reads files.
"""
