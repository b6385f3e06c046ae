"""Register the data sets that ``prepare`` can read, draw or render.

To add photos with captions: (1) write ``read_<name>(data)`` that returns photos and
problems, as :func:`data_prep.sources.flickr.read_flickr8k` does; (2) add it to
:data:`SOURCES`; (3) add the name to ``DataSettings.source`` in
:mod:`show_attend_tell.config.settings`; (4) add a test and an experiment.

Other data need a function that takes a :class:`Preparation` and writes the files that
the model's dataset reads, as :func:`data_prep.sources.mnist.prepare_mnist` does.
"""

from collections.abc import Callable
from functools import partial

from data_prep.sources.captions import prepare_photos, prepare_scenes
from data_prep.sources.coco import read_coco
from data_prep.sources.flickr import read_flickr8k, read_flickr30k
from data_prep.sources.folder import read_folder
from data_prep.sources.iiit5k import prepare_iiit5k
from data_prep.sources.mnist import prepare_mnist
from data_prep.sources.preparation import Preparation, Prepared
from data_prep.sources.rendered_words import prepare_rendered_words

# Keyed by `data.source` of an experiment.
SOURCES: dict[str, Callable[[Preparation], Prepared]] = {
    "flickr8k": partial(prepare_photos, read_flickr8k),
    "flickr30k": partial(prepare_photos, read_flickr30k),
    "coco": partial(prepare_photos, read_coco),
    "folder": partial(prepare_photos, read_folder),
    "scenes": prepare_scenes,
    "mnist": prepare_mnist,
    "iiit5k": prepare_iiit5k,
    "words": prepare_rendered_words,
}
