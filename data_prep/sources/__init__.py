"""Read data sets: one module per source, beside modules for formats that they share.

To add a source: (1) write a module with a function ``read_<name>(data, photo_folder)``
that returns the photos and their problems, as :mod:`data_prep.sources.flickr8k` does;
(2) add the function to ``SOURCES`` in :mod:`data_prep.prepare`; (3) add the name to
``DataSettings.source`` in :mod:`show_attend_tell.config.settings`; (4) add a test in
``tests/data_prep/sources``, and an experiment whose ``data.source`` is the name.
"""
