"""Serve RAM and DRAW for the tab of digits, and the reader for the tab of words.

``POST /digits/classify`` classifies a digit by glimpses, ``GET /digits/draw`` draws a
new digit, and ``POST /read`` reads a word.
"""

import time
from collections.abc import Callable
from typing import Annotated

import pydantic
from fastapi import FastAPI, File, Form, Query, UploadFile
from starlette.exceptions import HTTPException

from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import open_upload
from show_attend_tell.runtime.errors import PhotoError

Seed = Annotated[int, pydantic.Field(ge=0, lt=2**31)]


def add_siblings(
    app: FastAPI,
    digits: Callable | None,
    reader: Callable | None,
    queue: RequestQueue,
) -> None:
    """Add the services of the models that are not None to an application.

    The first request of a service loads its models; :func:`app.create_app` describes
    the arguments.
    """
    if digits is not None:

        @app.post("/digits/classify")
        async def classify(
            photo: Annotated[
                UploadFile, File(description="One digit, on plain ground.")
            ],
            seed: Annotated[
                Seed, Form(description="Of the first glimpse's place.")
            ] = 0,
        ):
            """Classify a drawn or photographed digit by a sequence of glimpses.

            The answer has `digit`, the model's input, 0 to 255; its `label`; and
            `glimpses`, each with the `box` of the sharpest patch (left, top, right,
            bottom in pixels of `digit`), what the retina has `seen`, 0 to 255, and the
            `probabilities` of the classes after it.
            """
            content = await photo.read()
            return await queue.run(_answer, digits, "classify", content, seed)

        @app.get("/digits/draw")
        async def draw(seed: Annotated[Seed, Query()] = 0):
            """Draw a new digit in T steps.

            The answer has T + 1 `canvases`, the first before any step, 0 to 255, and
            T `windows` that write: the `box` through the centres of the outer filters
            and their `deviation` in pixels; none for a model without attention.
            """
            return await queue.run(_timed, digits, "draw", seed)

    if reader is not None:

        @app.post("/read")
        async def read(
            photo: Annotated[
                UploadFile, File(description="One word, cut out of a photo.")
            ],
        ):
            """Read the word of a crop, with the attention of each character.

            The answer has the `word` in small letters, maybe empty; in nats `log_prob`,
            its end included, and `character_log_probs`; and `attention`, T maps (rows,
            columns) of sum 1 over `seen`, x0, y0, x1, y1 as fractions of the crop; null
            for a model that attends to no places.
            """
            content = await photo.read()
            values = await queue.run(_answer, reader, "read", content)
            name = (photo.filename or "photo").encode("utf-8", "replace").decode()
            return values | {"photo": name}


def _answer(load: Callable, method: str, content: bytes, *options) -> dict:
    """Return what models answer to an uploaded image, and the duration.

    Raises:
        HTTPException: the upload is no photo, or shows neither a digit nor a word.
    """
    image = open_upload(content)
    try:
        return _timed(load, method, image, *options)
    except PhotoError as error:
        raise HTTPException(422, str(error)) from None


def _timed(load: Callable, method: str, *arguments) -> dict:
    function = getattr(load(), method)
    start = time.monotonic()
    values = function(*arguments)
    return values | {"seconds": round(time.monotonic() - start, 3)}
