"""The bytes of the file of a picture."""

import io

from PIL import Image


def image_bytes(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    """Return a picture as a file of a format, saved with Pillow's options."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
