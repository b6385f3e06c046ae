"""Serve the reader for the tab of words: ``POST /read`` reads the word of a crop."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, File, UploadFile

from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.runtime.keras_startup import start_keras
from show_attend_tell.siblings.common.web import answer_upload

if TYPE_CHECKING:
    from show_attend_tell.siblings.words.page_reader import PageReader


# The queue runs one request at a time, so that no two requests load the reader.
@functools.cache
def shipped_reader() -> "PageReader":
    """Return the reader of the package; the first call takes seconds."""
    start_keras()
    from show_attend_tell.siblings.words.page_reader import PageReader

    return PageReader()


def make_router(
    queue: RequestQueue, reader: Callable[[], "PageReader"] = shipped_reader
) -> APIRouter:
    """Return the service; the first request calls `reader`."""
    router = APIRouter()

    def read_upload(content: bytes) -> dict:
        return answer_upload(reader().read, content)

    @router.post("/read")
    async def read(
        photo: Annotated[UploadFile, File(description="One word, cut out of a photo.")],
    ):
        """Read the word of a crop, with the attention of each character.

        The answer has the `word` in small letters, maybe empty; in nats `log_prob`,
        its end included, and `character_log_probs`; and `attention`, T maps (rows,
        columns) of sum 1 over `seen`, x0, y0, x1, y1 as fractions of the crop; null
        for a model that attends to no places.
        """
        content = await photo.read()
        values = await queue.run(read_upload, content)
        name = (photo.filename or "photo").encode("utf-8", "replace").decode()
        return values | {"photo": name}

    return router
