"""Hold RAM and DRAW for the tab of digits."""

import numpy as np
from PIL import Image

from show_attend_tell.siblings.digits.data import digit_of_image
from show_attend_tell.siblings.digits.draw.bound import Sampler
from show_attend_tell.siblings.digits.draw.figures import probabilities, written_boxes
from show_attend_tell.siblings.digits.draw.model import Draw
from show_attend_tell.siblings.digits.draw.models import GENERATORS
from show_attend_tell.siblings.digits.ram.figures import retina_glimpses
from show_attend_tell.siblings.digits.ram.model import RecurrentAttention
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.prediction import Predictor

_DECIMALS = 6  # of probabilities in JSON; float32 has no more


class DigitModels:
    """The models of the tab of digits: a classifier of 28 x 28 pixels, and DRAW."""

    def __init__(self, ram: RecurrentAttention | None = None, draw: Draw | None = None):
        """Take models, by default those of the package.

        Raises:
            ModelFileError: a file of the package is damaged.
        """
        self._ram = ram or CLASSIFIERS.load_shipped()
        self._draw = draw or GENERATORS.load_shipped()
        self._predict = Predictor(self._ram)
        self._sample = Sampler(self._draw)

    def classify(self, image: Image.Image, seed: int) -> dict:
        """Return the values of ``POST /digits/classify``, without the duration.

        The seed decides the first place.

        Raises:
            PhotoError: the image has no digit.
        """
        digit = digit_of_image(image)
        prediction = self._predict(digit[None], "mean", seed)
        assert prediction.steps is not None  # the model looks step by step
        seen = retina_glimpses(digit[None], prediction, self._ram)
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
        # Every picture is looked at T times; glimpses after the stop are not part of
        # it.
        glimpses = glimpses[: seen.counts[0]]
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
                {
                    "box": np.round(box.sides, 3).tolist(),
                    "deviation": round(box.sigma, 3),
                }
                for box in written_boxes(outputs["write"][0], self._draw)
            ]
        return {"seed": seed, "canvases": _pixels(canvases), "windows": windows}


def _pixels(values: np.ndarray) -> list:
    """Return values in [0, 1] as nested lists of integers up to 255."""
    return np.round(255 * values.clip(0, 1)).astype(int).tolist()
