"""Readers of data sets, which :mod:`data_prep.prepare` registers."""
