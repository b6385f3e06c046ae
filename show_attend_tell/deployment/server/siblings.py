"""Serve RAM and DRAW for the tab of digits, and the reader for the tab of words.

``POST /digits/classify`` classifies a digit by glimpses, ``GET /digits/draw`` draws a
new digit, and ``POST /read`` reads a word.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import pydantic
from fastapi import FastAPI, File, Form, Query, UploadFile

from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import Limits, open_upload
from show_attend_tell.runtime.errors import PhotoError, UploadError

if TYPE_CHECKING:  # its module imports Keras
    from show_attend_tell.deployment.server.sibling_models import (
        DigitModels,
        WordReader,
    )

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


def add_siblings(
    app: FastAPI,
    digits: "Callable[[], DigitModels] | None",
    reader: "Callable[[], WordReader] | None",
    queue: RequestQueue,
    limits: Limits,
    refusals: dict,
) -> None:
    """Add the services of the models that are not None to an application.

    The first request of a service loads its models.

    Args:
        app: the application.
        digits: returns the models of digits.
        reader: returns the reader of words.
        queue: see :func:`captions.add_captions`, also for the other arguments.
        limits: limits of uploads.
        refusals: OpenAPI's descriptions of errors.
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
            return await queue.run(_answer, digits, "classify", content, limits, seed)

        @app.get("/digits/draw", response_model=DrawingAnswer, responses=refusals)
        async def draw(seed: Annotated[Seed, Query()] = 0):
            """Draw a new digit step by step."""
            return await queue.run(_timed, digits, "draw", seed)

    if reader is not None:

        @app.post("/read", response_model=WordAnswer, responses=refusals)
        async def read(
            photo: Annotated[
                UploadFile, File(description="One word, cut out of a photo.")
            ],
        ):
            """Read the word of a crop, with the attention of each character."""
            content = await photo.read()
            values = await queue.run(_answer, reader, "read", content, limits)
            name = (photo.filename or "photo").encode("utf-8", "replace").decode()
            return values | {"photo": name}


def _answer(
    load: Callable, method: str, content: bytes, limits: Limits, *options
) -> dict:
    """Return what models answer to an uploaded image, and the duration.

    Raises:
        UploadError: the upload is no photo, or shows neither a digit nor a word.
    """
    image = open_upload(content, limits)
    try:
        return _timed(load, method, image, *options)
    except PhotoError as error:
        raise UploadError(422, str(error)) from None


def _timed(load: Callable, method: str, *arguments) -> dict:
    function = getattr(load(), method)
    start = time.monotonic()
    values = function(*arguments)
    return values | {"seconds": round(time.monotonic() - start, 3)}
