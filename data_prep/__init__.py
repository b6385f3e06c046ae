"""From photos and captions of any source to one manifest and its vocabulary.

The readers in :mod:`data_prep.sources` know one source each and return the same;
:func:`data_prep.prepare.prepare` chooses among them.
"""
