"""Serve the reader of words for the tab of words, ``POST /read``."""

from typing import Annotated, Self

import numpy as np
import pydantic
from fastapi import FastAPI, File, UploadFile
from PIL import Image

from show_attend_tell.data.words import HEIGHT, WIDTH, resize_crop
from show_attend_tell.deployment.server.digits import answer_upload
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import Limits
from show_attend_tell.runtime.errors import PhotoError
from show_attend_tell.siblings import model_files
from show_attend_tell.siblings.words.figures import seen_width
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.reading import best_readings, is_empty
from show_attend_tell.siblings.words.task import load_model

_DIGITS = 6  # decimals in JSON; float32 has no more


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


class WordReader:
    """The model of the tab.

    Args:
        model: a reader.
    """

    def __init__(self, model: Reader):
        self._search = Searcher(model, batch=1)

    @classmethod
    def shipped(cls) -> Self | None:
        """Load the reader of the package; None if the installation has none.

        Raises:
            ModelFileError: the file is damaged.
        """
        if not model_files.are_shipped(model_files.READER):
            return None
        reader = cls(load_model(model_files.shipped_file(model_files.READER)))
        # Compile now; a first request would wait for seconds.
        reader._search(np.zeros((1, HEIGHT, WIDTH), np.uint8))
        return reader

    def read(self, image: Image.Image) -> dict:
        """Return the values of :class:`WordAnswer`, without photo and duration.

        Args:
            image: a crop of one word.

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
            attention = np.round(reading.attention.astype(float), _DIGITS).tolist()
            share = seen_width(reading.attention.shape[1:]) / WIDTH
        log_probs = np.log(reading.probabilities.astype(float))
        return {
            "word": reading.word,
            "log_prob": round(reading.log_prob, _DIGITS),
            "character_log_probs": np.round(log_probs, _DIGITS).tolist(),
            "attention": attention,
            "seen": [0.0, 0.0, share, 1.0],
        }


def add_words(
    app: FastAPI,
    reader: WordReader,
    queue: RequestQueue,
    limits: Limits,
    refusals: dict,
) -> None:
    """Add the service to an application; see :func:`digits.add_digits`."""

    @app.post("/read", response_model=WordAnswer, responses=refusals)
    async def read(
        photo: Annotated[UploadFile, File(description="One word, cut out of a photo.")],
    ):
        """Read the word of a crop, with the attention of each character."""
        content = await photo.read()
        values = await queue.run(answer_upload, reader.read, content, limits)
        name = (photo.filename or "photo").encode("utf-8", "replace").decode()
        return values | {"photo": name}
