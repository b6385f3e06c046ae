"""Provide the pictures that the demo page offers: drawn scenes, and a photo."""

import io
from pathlib import Path

from matplotlib import cbook
from PIL import Image

from data_prep.scenes.scenes import make_scene

_SCENES = (4, 11, 23, 42)  # numbers of test scenes


def example_pictures(scene_net: bool) -> list[tuple[str, bytes]]:
    """Return four example pictures.

    Args:
        scene_net: whether the encoder is SceneNet; other encoders are trained on
            photos, so one of their examples is a photo.

    Returns:
        The title of each picture and its JPEG bytes.
    """
    drawn = [make_scene(0, "test", number)[:2] for number in _SCENES]
    pictures = [(caption, _jpeg(image)) for image, caption in drawn]
    if scene_net:
        return pictures
    # The only photo in Matplotlib's sample data; a work of the US Navy, public domain.
    path = Path(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))
    if not path.is_file():  # some distributions package the sample data separately
        return pictures
    return [("Grace Hopper, photo: US Navy", path.read_bytes()), *pictures[:-1]]


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
