"""Convert photos and captions of any source to a manifest, vocabulary and features.

Each reader in :mod:`data_prep.sources` reads one source; all return the same types.
:func:`data_prep.prepare.prepare` calls the reader of the experiment's source, and
:func:`data_prep.extract.extract` computes the features of the prepared photos.
"""
