"""Serve RAM and DRAW for the tab of digits.

``POST /digits/classify`` classifies a digit by glimpses, and ``GET /digits/draw`` draws
a new digit.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import pydantic
from fastapi import APIRouter, File, Form, Query, UploadFile

from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.runtime.keras_startup import start_keras
from show_attend_tell.siblings.common.web import answer_upload, timed

if TYPE_CHECKING:
    from show_attend_tell.siblings.digits.page_models import DigitModels

Seed = Annotated[int, pydantic.Field(ge=0, lt=2**31)]


# The queue runs one request at a time, so that no two requests load the models.
@functools.cache
def shipped_models() -> "DigitModels":
    """Return the models of the package; the first call takes seconds."""
    start_keras()
    from show_attend_tell.siblings.digits.page_models import DigitModels

    return DigitModels()


def make_router(
    queue: RequestQueue, models: Callable[[], "DigitModels"] = shipped_models
) -> APIRouter:
    """Return the services; the first request calls `models`."""
    router = APIRouter()

    def classify_upload(content: bytes, seed: int) -> dict:
        return answer_upload(models().classify, content, seed)

    def draw_digit(seed: int) -> dict:
        return timed(models().draw, seed)

    @router.post("/digits/classify")
    async def classify(
        photo: Annotated[UploadFile, File(description="One digit, on plain ground.")],
        seed: Annotated[Seed, Form(description="Of the first glimpse's place.")] = 0,
    ):
        """Classify a drawn or photographed digit by a sequence of glimpses.

        The answer has `digit`, the model's input, 0 to 255; its `label`; and
        `glimpses`, each with the `box` of the sharpest patch (left, top, right,
        bottom in pixels of `digit`), what the retina has `seen`, 0 to 255, and the
        `probabilities` of the classes after it.
        """
        content = await photo.read()
        return await queue.run(classify_upload, content, seed)

    @router.get("/digits/draw")
    async def draw(seed: Annotated[Seed, Query()] = 0):
        """Draw a new digit in T steps.

        The answer has T + 1 `canvases`, the first before any step, 0 to 255, and
        T `windows` that write: the `box` through the centres of the outer filters
        and their `deviation` in pixels; none for a model without attention.
        """
        return await queue.run(draw_digit, seed)

    return router
