"""Serve RAM and DRAW for the tab of digits, and the reader for the tab of words.

``POST /digits/classify`` classifies a digit by glimpses, ``GET /digits/draw`` draws a
new digit, and ``POST /read`` reads a word.
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
from show_attend_tell.data.words import HEIGHT, WIDTH, resize_crop
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import Limits, open_upload
from show_attend_tell.runtime.errors import PhotoError, UploadError
from show_attend_tell.siblings.draw.bound import Sampler
from show_attend_tell.siblings.draw.figures import probabilities, written_boxes
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.models import is_shipped, load_model, shipped_file
from show_attend_tell.siblings.ram.figures import retina_glimpses
from show_attend_tell.siblings.ram.model import RecurrentAttention
from show_attend_tell.siblings.ram.prediction import Predictor
from show_attend_tell.siblings.words.figures import seen_width
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.reading import best_readings, is_empty

_DECIMALS = 6  # of probabilities in JSON; float32 has no more

Pixels = list[list[int]]
Seed = Annotated[int, pydantic.Field(ge=0, lt=2**31)]
Seconds = Annotated[
    float, pydantic.Field(description="Duration in seconds, without the queue.")
]


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

    digit: Pixels = pydantic.Field(description="Input of the model, 0 to 255.")
    label: int = pydantic.Field(description="Most likely class after all glimpses.")
    glimpses: list[GlimpseAnswer]
    seconds: Seconds


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
    seconds: Seconds


class WordAnswer(pydantic.BaseModel):
    """The word of a crop, and where the model looked for each of its T characters."""

    word: str = pydantic.Field(description="In small letters; may be empty.")
    log_prob: float = pydantic.Field(description="log p(word), its end included.")
    character_log_probs: list[float] = pydantic.Field(
        description="log p of each character in nats."
    )
    attention: list[list[list[float]]] | None = pydantic.Field(
        description="T maps (rows, columns) over `seen`, each of sum 1; null for a "
        "model that attends to no places."
    )
    seen: list[float] = pydantic.Field(
        description="Region that the maps cover: x0, y0, x1, y1 as fractions."
    )
    photo: str = pydantic.Field(description="File name of the upload.")
    seconds: Seconds


class DigitModels:
    """The models of the tab of digits: a classifier of 28 x 28 pixels, and DRAW."""

    def __init__(self, ram: RecurrentAttention, draw: Draw):
        self._ram, self._draw = ram, draw
        self._predict, self._sample = Predictor(ram), Sampler(draw)

    @classmethod
    def shipped(cls) -> Self | None:
        """Load the models of the package; None if the installation has none.

        Raises:
            ModelFileError: a file is damaged.
        """
        tasks = ("classify", "generate")
        if not all(map(is_shipped, tasks)):
            return None
        models = cls(*(load_model(shipped_file(task), task) for task in tasks))
        # Compile now; a first request would wait for seconds.
        models._predict(np.zeros((1, DIGIT, DIGIT), np.uint8))
        models.draw(0)
        return models

    def classify(self, image: Image.Image, seed: int) -> dict:
        """Return the values of :class:`DigitAnswer`, without its duration.

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


class WordReader:
    """The reader of the tab of words."""

    def __init__(self, model: Reader):
        self._search = Searcher(model, batch=1)

    @classmethod
    def shipped(cls) -> Self | None:
        """Load the reader of the package; None if the installation has none.

        Raises:
            ModelFileError: the file is damaged.
        """
        if not is_shipped("read"):
            return None
        reader = cls(load_model(shipped_file("read"), "read"))
        # Compile now; a first request would wait for seconds.
        reader._search(np.zeros((1, HEIGHT, WIDTH), np.uint8))
        return reader

    def read(self, image: Image.Image) -> dict:
        """Return the values of :class:`WordAnswer`, without photo and duration.

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


def _pixels(values: np.ndarray) -> list:
    """Return values in [0, 1] as nested lists of integers up to 255."""
    return np.round(255 * values.clip(0, 1)).astype(int).tolist()


def add_siblings(
    app: FastAPI,
    digits: DigitModels | None,
    reader: WordReader | None,
    queue: RequestQueue,
    limits: Limits,
    refusals: dict,
) -> None:
    """Add the services of the models that are not None to an application.

    See :func:`captions.add_captions` for the other arguments.
    """
    if digits is not None:

        @app.post("/digits/classify", response_model=DigitAnswer, responses=refusals)
        async def classify(
            photo: Annotated[
                UploadFile, File(description="One digit, on plain ground.")
            ],
            seed: Annotated[
                Seed, Form(description="Of the first glimpse's place.")
            ] = 0,
        ):
            """Classify a drawn or photographed digit by a sequence of glimpses."""
            content = await photo.read()
            return await queue.run(_answer, digits.classify, content, limits, seed)

        @app.get("/digits/draw", response_model=DrawingAnswer, responses=refusals)
        async def draw(seed: Annotated[Seed, Query()] = 0):
            """Draw a new digit step by step."""
            return await queue.run(_timed, digits.draw, seed)

    if reader is not None:

        @app.post("/read", response_model=WordAnswer, responses=refusals)
        async def read(
            photo: Annotated[
                UploadFile, File(description="One word, cut out of a photo.")
            ],
        ):
            """Read the word of a crop, with the attention of each character."""
            content = await photo.read()
            values = await queue.run(_answer, reader.read, content, limits)
            name = (photo.filename or "photo").encode("utf-8", "replace").decode()
            return values | {"photo": name}


def _answer(model: Callable, content: bytes, limits: Limits, *options) -> dict:
    """Return what a model answers to an uploaded image, and its duration.

    Raises:
        UploadError: the upload is no photo, or shows neither a digit nor a word.
    """
    image = open_upload(content, limits)
    try:
        return _timed(model, image, *options)
    except PhotoError as error:
        raise UploadError(422, str(error)) from None


def _timed(function: Callable, *arguments) -> dict:
    start = time.monotonic()
    values = function(*arguments)
    return values | {"seconds": round(time.monotonic() - start, 3)}
