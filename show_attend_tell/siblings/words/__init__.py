"""Read the word of a crop: recursive convolutions and a decoder with attention.

The model of Lee and Osindero, arXiv:1603.03101: :mod:`convolutions` and :mod:`encoder`
compute the annotations of a crop, :mod:`decoder` computes characters from them, and
:mod:`model` joins both. :mod:`generation` finds words with the search of captions, and
:mod:`reading` reads files.
"""
