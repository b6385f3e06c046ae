"""Hold RAM and DRAW for the tab of digits, and the reader for the tab of words."""

import numpy as np
from PIL import Image

from show_attend_tell.data.digits import digit_of_image
from show_attend_tell.data.words import WIDTH, resize_crop
from show_attend_tell.runtime.errors import PhotoError
from show_attend_tell.siblings.draw.bound import Sampler
from show_attend_tell.siblings.draw.figures import probabilities, written_boxes
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.models import load_model, shipped_file
from show_attend_tell.siblings.ram.figures import retina_glimpses
from show_attend_tell.siblings.ram.model import RecurrentAttention
from show_attend_tell.siblings.ram.prediction import Predictor
from show_attend_tell.siblings.words.figures import seen_width
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.reading import best_readings, is_empty

_DECIMALS = 6  # of probabilities in JSON; float32 has no more


class DigitModels:
    """The models of the tab of digits: a classifier of 28 x 28 pixels, and DRAW."""

    def __init__(self, ram: RecurrentAttention | None = None, draw: Draw | None = None):
        """Take models, by default those of the package.

        Raises:
            ModelFileError: a file of the package is damaged.
        """
        self._ram = ram = ram or _shipped("classify")
        self._draw = draw = draw or _shipped("generate")
        self._predict, self._sample = Predictor(ram), Sampler(draw)

    def classify(self, image: Image.Image, seed: int) -> dict:
        """Return the values of ``POST /digits/classify``, without the duration.

        The seed decides the first place.

        Raises:
            PhotoError: the image has no digit.
        """
        digit = digit_of_image(image)
        prediction = self._predict(digit[None], "mean", seed)
        seen = retina_glimpses(digit[None], prediction.locations, self._ram)
        glimpses = [
            {
                "box": box.tolist(),
                "seen": _pixels(view),
                "probabilities": np.round(p.astype(float), _DECIMALS).tolist(),
            }
            for box, view, p in zip(
                seen.boxes[0], seen.views[0], prediction.steps[0], strict=True
            )
        ]
        return {
            "digit": digit.tolist(),
            "label": int(prediction.classes[0]),
            "glimpses": glimpses,
        }

    def draw(self, seed: int) -> dict:
        """Return the values of ``GET /digits/draw``, without the duration."""
        outputs = self._sample(1, seed)
        canvases = probabilities(outputs["canvas"][0], self._draw)  # (T + 1, H, W)
        windows = []
        if "write" in outputs:
            windows = [
                {"box": np.round(box, 3).tolist(), "deviation": round(float(sigma), 3)}
                for box, sigma in written_boxes(outputs["write"][0], self._draw)
            ]
        return {"seed": seed, "canvases": _pixels(canvases), "windows": windows}


class WordReader:
    """The reader of the tab of words."""

    def __init__(self, model: Reader | None = None):
        """Take a reader; see :class:`DigitModels`."""
        self._search = Searcher(model or _shipped("read"), batch=1)

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
        attention, share = None, 1.0
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


def _shipped(task: str):
    return load_model(shipped_file(task), task)


def _pixels(values: np.ndarray) -> list:
    """Return values in [0, 1] as nested lists of integers up to 255."""
    return np.round(255 * values.clip(0, 1)).astype(int).tolist()
