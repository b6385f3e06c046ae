"""Read words for the web page: one crop in, and numbers out."""

from typing import Self

import numpy as np
from PIL import Image

from show_attend_tell.data.words import HEIGHT, WIDTH, resize_crop
from show_attend_tell.runtime.errors import PhotoError
from show_attend_tell.siblings.pretrained import READER, load_shipped
from show_attend_tell.siblings.words.figures import seen_width
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.reading import best_readings, is_empty

_DIGITS = 6  # decimals in JSON; float32 has no more


class PageReader:
    """The model of the page's words, see :class:`deployment.server.words.WordReader`.

    Args:
        model: a reader.
    """

    def __init__(self, model: Reader):
        self._search = Searcher(model, batch=1)

    @classmethod
    def shipped(cls) -> Self:
        """Load the reader of the package.

        Raises:
            PretrainedModelError: the installation has none.
            ModelFileError: the file is damaged.
        """
        reader = cls(load_shipped(READER))
        # Compile now; a first request would wait for seconds.
        reader._search(np.zeros((1, HEIGHT, WIDTH), np.uint8))
        return reader

    def read(self, image: Image.Image) -> dict:
        """Return the word of a crop, and the attention of each character.

        Args:
            image: a crop of one word.

        Raises:
            PhotoError: the crop has one grey level.
        """
        crop = resize_crop(image)
        if is_empty(crop):
            raise PhotoError(
                "`photo` must show a word. Received: the same brightness everywhere; "
                "draw a word, or choose another crop"
            )
        (found,) = best_readings(self._search, crop[None])
        attention, share = None, 1.0
        if found.attention is not None:
            attention = np.round(found.attention.astype(float), _DIGITS).tolist()
            share = seen_width(found.attention.shape[1:]) / WIDTH
        log_probs = np.log(found.probabilities.astype(float))
        return {
            "word": found.word,
            "log_prob": round(found.log_prob, _DIGITS),
            "character_log_probs": np.round(log_probs, _DIGITS).tolist(),
            "attention": attention,
            "seen": [0.0, 0.0, share, 1.0],
        }
