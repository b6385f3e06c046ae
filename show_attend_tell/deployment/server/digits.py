"""Serve RAM and DRAW for the tab of digits.

``POST /digits/classify`` classifies a digit by glimpses, and ``GET /digits/draw`` draws
a new digit.
"""

import time
from collections.abc import Callable
from typing import Annotated, Self

import numpy as np
import pydantic
from fastapi import FastAPI, File, Form, Query, UploadFile
from PIL import Image

from show_attend_tell.config.siblings import DIGIT
from show_attend_tell.data.digits import digit_of_image
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import Limits, open_upload
from show_attend_tell.runtime.errors import PhotoError, UploadError
from show_attend_tell.siblings import model_files
from show_attend_tell.siblings.draw.bound import Sampler
from show_attend_tell.siblings.draw.figures import probabilities, written_boxes
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.draw.task import load_model as load_draw
from show_attend_tell.siblings.ram.figures import retina_boxes, retina_views
from show_attend_tell.siblings.ram.model import RecurrentAttention
from show_attend_tell.siblings.ram.prediction import Predictor
from show_attend_tell.siblings.ram.task import load_model as load_ram

_MOST_SEEDS = 2**31

Pixels = list[list[int]]


class GlimpseAnswer(pydantic.BaseModel):
    """One glimpse at a digit."""

    box: list[float] = pydantic.Field(
        description="Left, top, right, bottom of the sharpest patch, in pixels of "
        "`digit`."
    )
    seen: Pixels = pydantic.Field(description="What the retina returned, 0 to 255.")
    probabilities: list[float] = pydantic.Field(
        description="Probability of each class after this glimpse."
    )


class DigitAnswer(pydantic.BaseModel):
    """The class of a digit, and the glimpses that led to it."""

    digit: Pixels = pydantic.Field(description="What the model is given, 0 to 255.")
    label: int = pydantic.Field(description="Most likely class after all glimpses.")
    glimpses: list[GlimpseAnswer]
    seconds: float = pydantic.Field(
        description="Duration in seconds, without the queue."
    )


class WindowAnswer(pydantic.BaseModel):
    """The window that wrote in one step."""

    box: list[float] = pydantic.Field(
        description="Left, top, right, bottom through the centres of the outer filters."
    )
    deviation: float = pydantic.Field(description="Sigma of the filters in pixels.")


class DrawingAnswer(pydantic.BaseModel):
    """A digit that the model drew; T steps."""

    seed: int
    canvases: list[Pixels] = pydantic.Field(
        description="T + 1 canvases, the first before any step; 0 to 255."
    )
    windows: list[WindowAnswer] = pydantic.Field(
        description="T windows; empty for a model without attention."
    )
    seconds: float = pydantic.Field(
        description="Duration in seconds, without the queue."
    )


class DigitModels:
    """The two models of the tab.

    Args:
        ram: a classifier by glimpses of pictures of 28 x 28 pixels.
        draw: a model that generates digits.
    """

    def __init__(self, ram: RecurrentAttention, draw: Draw):
        self._ram, self._draw = ram, draw
        self._predict, self._sample = Predictor(ram), Sampler(draw)

    @classmethod
    def shipped(cls) -> Self | None:
        """Load the models of the package; None if the installation has none.

        Raises:
            ModelFileError: a file is damaged.
        """
        if not model_files.are_shipped(model_files.RAM, model_files.DRAW):
            return None
        models = cls(
            load_ram(model_files.shipped_file(model_files.RAM)),
            load_draw(model_files.shipped_file(model_files.DRAW)),
        )
        # Compile now; a first request would wait for seconds.
        models._predict(np.zeros((1, DIGIT, DIGIT), np.uint8))
        models.draw(0)
        return models

    def classify(self, image: Image.Image, seed: int) -> dict:
        """Return the values of :class:`DigitAnswer`, without its duration.

        Args:
            image: a photo or drawing of one digit.
            seed: seed of the first place.

        Raises:
            PhotoError: the image has no digit.
        """
        digit = digit_of_image(image)
        prediction = self._predict(digit[None], "mean", seed)
        views = retina_views(digit[None], prediction.locations, self._ram)[0]
        boxes = retina_boxes(prediction.locations[0], self._ram)  # (T, 4)
        glimpses = [
            {
                "box": box.tolist(),
                "seen": _pixels(view),
                "probabilities": np.round(p.astype(float), 6).tolist(),
            }
            for box, view, p in zip(boxes, views, prediction.steps[0], strict=True)
        ]
        return {
            "digit": digit.tolist(),
            "label": int(prediction.probabilities[0].argmax()),
            "glimpses": glimpses,
        }

    def draw(self, seed: int) -> dict:
        """Return the values of :class:`DrawingAnswer`, without its duration."""
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


def add_digits(
    app: FastAPI,
    models: DigitModels,
    queue: RequestQueue,
    limits: Limits,
    refusals: dict,
) -> None:
    """Add the two services to an application.

    Args:
        app: the application.
        models: the models.
        queue: the queue of all requests to models.
        limits: limits of uploads.
        refusals: OpenAPI's descriptions of responses that are errors.
    """

    @app.post("/digits/classify", response_model=DigitAnswer, responses=refusals)
    async def classify(
        photo: Annotated[UploadFile, File(description="One digit, on plain ground.")],
        seed: Annotated[
            int, Form(ge=0, lt=_MOST_SEEDS, description="Of the first glimpse's place.")
        ] = 0,
    ):
        """Classify a drawn or photographed digit by a sequence of glimpses."""
        content = await photo.read()
        return await queue.run(answer_upload, models.classify, content, limits, seed)

    @app.get("/digits/draw", response_model=DrawingAnswer, responses=refusals)
    async def draw(seed: Annotated[int, Query(ge=0, lt=_MOST_SEEDS)] = 0):
        """Draw a new digit step by step."""
        return await queue.run(_timed, models.draw, seed)


def answer_upload(answer: Callable, content: bytes, limits: Limits, *options) -> dict:
    """Return what a model answers to an uploaded image, and its duration in seconds.

    Args:
        answer: called with the image and the options.
        content: the uploaded bytes.
        limits: limits of uploads.
        options: further arguments of ``answer``.

    Raises:
        UploadError: the upload is no photo, or shows neither a digit nor a word.
    """
    image = open_upload(content, limits)
    try:
        return _timed(answer, image, *options)
    except PhotoError as error:
        raise UploadError(422, str(error)) from None


def _timed(function: Callable, *arguments) -> dict:
    start = time.monotonic()
    values = function(*arguments)
    return values | {"seconds": round(time.monotonic() - start, 3)}
