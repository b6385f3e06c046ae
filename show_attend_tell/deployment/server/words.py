"""Serve ``POST /read``, for the tab of words."""

import time
from typing import Annotated, Protocol

import pydantic
from fastapi import FastAPI, File, UploadFile
from PIL import Image

from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import Limits, open_upload
from show_attend_tell.runtime.errors import PhotoError, UploadError


class WordReader(Protocol):
    """The model that the tab shows."""

    def read(self, image: Image.Image) -> dict:
        """Return the values of :class:`WordAnswer`, without photo and duration."""


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
    seconds: float = pydantic.Field(
        description="Duration in seconds, without the queue."
    )


def add_words(
    app: FastAPI,
    reader: WordReader,
    queue: RequestQueue,
    limits: Limits,
    refusals: dict,
) -> None:
    """Add the service to an application.

    Args:
        app: the application.
        reader: the model.
        queue: the queue of all requests to models.
        limits: limits of uploads.
        refusals: OpenAPI's descriptions of responses that are errors.
    """

    @app.post("/read", response_model=WordAnswer, responses=refusals)
    async def read(
        photo: Annotated[UploadFile, File(description="One word, cut out of a photo.")],
    ):
        """Read the word of a crop, with the attention of each character."""
        content = await photo.read()
        values = await queue.run(_read_upload, reader, content, limits)
        name = (photo.filename or "photo").encode("utf-8", "replace").decode()
        return values | {"photo": name}


def _read_upload(reader: WordReader, content: bytes, limits: Limits) -> dict:
    """Return the values for JSON of an uploaded crop's word."""
    start = time.monotonic()
    image = open_upload(content, limits)
    try:
        values = reader.read(image)
    except PhotoError as error:  # of a crop of one grey level
        raise UploadError(422, str(error)) from None
    return values | {"seconds": round(time.monotonic() - start, 3)}
