"""From photos and captions of any source to one manifest and its vocabulary.

The readers (:mod:`~data_prep.flickr8k`, :mod:`~data_prep.flickr30k`,
:mod:`~data_prep.coco`, :mod:`~data_prep.folder`) know one source each and return the
same; :func:`data_prep.prepare.prepare` chooses among them.
"""
