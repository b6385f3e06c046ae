"""Hold the reader for the tab of words."""

import numpy as np
from PIL import Image

from show_attend_tell.runtime.errors import PhotoError
from show_attend_tell.siblings.words.data import WIDTH, resize_crop
from show_attend_tell.siblings.words.figures import seen_width
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.models import READERS
from show_attend_tell.siblings.words.reading import best_readings, is_empty

_DECIMALS = 6  # of probabilities in JSON; float32 has no more


class PageReader:
    """The reader of the tab of words."""

    def __init__(self, model: Reader | None = None):
        """Take a reader, by default the reader of the package.

        Raises:
            ModelFileError: the file of the package is damaged.
        """
        # A larger batch would be filled up for the single crop of a request.
        self._search = Searcher(model or READERS.load_shipped(), batch=1)

    def read(self, image: Image.Image) -> dict:
        """Return the values of ``POST /read``, without photo and duration.

        Raises:
            PhotoError: the crop has one grey level.
        """
        crop = resize_crop(image)
        if is_empty(crop):
            raise PhotoError(
                "`photo` must show a word. Received: the same brightness everywhere; "
                "draw a word, or choose another crop"
            )
        (reading,) = best_readings(self._search, crop[None])
        attention = None
        share = 1.0
        if reading.attention is not None:
            attention = np.round(reading.attention.astype(float), _DECIMALS).tolist()
            share = seen_width(reading.attention.shape[1:]) / WIDTH
        log_probs = np.log(reading.probabilities.astype(float))
        return {
            "word": reading.word,
            "log_prob": round(reading.log_prob, _DECIMALS),
            "character_log_probs": np.round(log_probs, _DECIMALS).tolist(),
            "attention": attention,
            "seen": [0.0, 0.0, share, 1.0],
        }
