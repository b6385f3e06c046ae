"""Run the models of a tab on uploads, and answer with the duration."""

import time
from collections.abc import Callable

from PIL import Image
from starlette.exceptions import HTTPException

from show_attend_tell.deployment.server.uploads import open_upload
from show_attend_tell.runtime.errors import PhotoError


def timed(function: Callable[..., dict], *arguments: object) -> dict:
    """Return the values of a function, and its ``seconds``."""
    start = time.monotonic()
    values = function(*arguments)
    return values | {"seconds": round(time.monotonic() - start, 3)}


def answer_upload(
    function: Callable[..., dict], content: bytes, *arguments: object
) -> dict:
    """Return the values of a function of an uploaded image, and its ``seconds``.

    Args:
        function: takes an image and the other arguments; it raises a PhotoError if the
            image does not show what the model reads.
        content: the uploaded file.
        *arguments: the other arguments.

    Raises:
        HTTPException: the upload is no photo, or does not show what the model reads.
    """
    image: Image.Image = open_upload(content)
    try:
        return timed(function, image, *arguments)
    except PhotoError as error:
        raise HTTPException(422, str(error)) from None
