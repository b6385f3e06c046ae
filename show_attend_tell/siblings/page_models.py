"""Run RAM and DRAW for the web page: one picture in, or one seed, and numbers out."""

from typing import Self

import numpy as np
from PIL import Image

from show_attend_tell.config.siblings import DIGIT
from show_attend_tell.data.digits import digit_of_image
from show_attend_tell.siblings.classification.prediction import Predictor
from show_attend_tell.siblings.draw.bound import Sampler
from show_attend_tell.siblings.draw.figures import probabilities, written_boxes
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.pretrained import load_shipped
from show_attend_tell.siblings.ram.figures import retina_boxes, retina_views
from show_attend_tell.siblings.ram.model import RecurrentAttention


class PageModels:
    """Models of the page's digits, see :class:`deployment.server.digits.DigitModels`.

    Args:
        ram: a classifier by glimpses of pictures of 28 x 28 pixels.
        draw: a model that generates digits.
    """

    def __init__(self, ram: RecurrentAttention, draw: Draw):
        self._ram, self._draw = ram, draw
        self._predict, self._sample = Predictor(ram), Sampler(draw)

    @classmethod
    def shipped(cls) -> Self:
        """Load the models of the package.

        Raises:
            PretrainedModelError: the installation has none.
            ModelFileError: a file is damaged.
        """
        models = cls(load_shipped("ram_mnist"), load_shipped("draw_mnist"))
        # Compile now; a first request would wait for seconds.
        models._predict(np.zeros((1, DIGIT, DIGIT), np.uint8))
        models.draw(0)
        return models

    def classify(self, image: Image.Image, seed: int) -> dict:
        """Return what RAM sees of a digit and its class after each glimpse.

        Args:
            image: a photo or drawing of one digit.
            seed: seed of the first place.

        Raises:
            PhotoError: the image has no digit.
        """
        digit = digit_of_image(image)
        found = self._predict(digit[None], "mean", seed)
        views = retina_views(digit[None], found.locations, self._ram)[0]  # (T, S, S)
        boxes = retina_boxes(found.locations[0], self._ram)  # (T, 4)
        glimpses = [
            {
                "box": box.tolist(),
                "seen": _pixels(view),
                "probabilities": np.round(p.astype(float), 6).tolist(),
            }
            for box, view, p in zip(boxes, views, found.steps[0], strict=True)
        ]
        return {
            "digit": digit.tolist(),
            "label": int(found.probabilities[0].argmax()),
            "glimpses": glimpses,
        }

    def draw(self, seed: int) -> dict:
        """Return a picture that DRAW generates, after each step.

        Args:
            seed: seed of the picture.
        """
        outputs = self._sample(1, seed)
        canvases = probabilities(outputs["canvas"][0], self._draw)  # (T + 1, H, W)
        windows = []
        if "write" in outputs:
            windows = [
                {"box": np.round(box, 3).tolist(), "deviation": round(float(sigma), 3)}
                for box, sigma in written_boxes(outputs["write"][0], self._draw)
            ]
        return {"seed": seed, "canvases": _pixels(canvases), "windows": windows}


def _pixels(values: np.ndarray) -> list:
    """Return values in [0, 1] as nested lists of integers up to 255."""
    return np.round(255 * values.clip(0, 1)).astype(int).tolist()
