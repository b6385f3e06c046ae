"""Serve ``POST /digits/classify`` and ``GET /digits/draw``, for the tab of digits."""

import time
from typing import Annotated, Protocol

import pydantic
from fastapi import FastAPI, File, Form, Query, UploadFile
from PIL import Image

from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import Limits, open_upload
from show_attend_tell.runtime.errors import PhotoError, UploadError

_MOST_SEEDS = 2**31

Pixels = list[list[int]]


class DigitModels(Protocol):
    """The two models that the tab shows."""

    def classify(self, image: Image.Image, seed: int) -> dict:
        """Return the values of :class:`DigitAnswer`, without its duration."""

    def draw(self, seed: int) -> dict:
        """Return the values of :class:`DrawingAnswer`, without its duration."""


class GlimpseAnswer(pydantic.BaseModel):
    """One glimpse at a digit."""

    box: list[float] = pydantic.Field(
        description="Left, top, right, bottom of the sharpest patch, in pixels of "
        "`digit`."
    )
    seen: Pixels = pydantic.Field(description="What the retina returned, 0 to 255.")
    probabilities: list[float] = pydantic.Field(
        description="Of the classes after this glimpse."
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
        description="T + 1 canvases, the first one before any step; 0 to 255."
    )
    windows: list[WindowAnswer] = pydantic.Field(
        description="T windows; empty for a model without attention."
    )
    seconds: float = pydantic.Field(
        description="Duration in seconds, without the queue."
    )


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
        return await queue.run(_classify_upload, models, content, limits, seed)

    @app.get("/digits/draw", response_model=DrawingAnswer, responses=refusals)
    async def draw(seed: Annotated[int, Query(ge=0, lt=_MOST_SEEDS)] = 0):
        """Draw a new digit step by step."""
        return await queue.run(_timed, models.draw, seed)


def _classify_upload(
    models: DigitModels, content: bytes, limits: Limits, seed: int
) -> dict:
    image = open_upload(content, limits)
    try:
        return _timed(models.classify, image, seed)
    except PhotoError as error:  # of a photo without a digit
        raise UploadError(422, str(error)) from None


def _timed(function, *arguments) -> dict:
    start = time.monotonic()
    values = function(*arguments)
    return values | {"seconds": round(time.monotonic() - start, 3)}
