"""Convert data sets of any source to the files that training reads.

:mod:`data_prep.sources` has the sources, :func:`data_prep.prepare.prepare` calls
that of an experiment, and :func:`data_prep.extract.extract` computes the features
of prepared photos.
"""
