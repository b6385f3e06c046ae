"""Provide the pictures that the demo page and ``make demo`` offer: photos and scenes.

    python -m data_prep.scenes.example_pictures FOLDER

writes the photos into a folder. They are crops of Matplotlib's sample, the only photo
that an installed dependency contains: Grace Hopper, by James S. Davis, US Navy, public
domain as a work of the federal government of the United States.
"""

import io
from importlib.util import find_spec
from pathlib import Path

import click
from PIL import Image

from data_prep.scenes.scenes import make_scene
from show_attend_tell.runtime.files import atomic_write

_SAMPLE = "mpl-data/sample_data/grace_hopper.jpg"
_SCENES = (4, 11, 23, 42)  # numbers of test scenes
# Title -> region of the photo, left, upper, right, lower in pixels.
_PHOTOS = {
    "Grace Hopper, photo: US Navy": (0, 0, 512, 600),
    "Grace Hopper, upper part of the photo": (0, 0, 512, 400),
    "Grace Hopper, face, from the same photo": (120, 0, 420, 300),
}


def example_pictures(scene_net: bool) -> list[tuple[str, bytes, str]]:
    """Return four example pictures.

    Args:
        scene_net: whether the encoder is SceneNet. Other encoders are trained on
            photos: their examples are photos and one scene, which shows the caption of
            a picture unlike the training photos.

    Returns:
        The title of each picture, its JPEG bytes, and a note for a picture whose
        caption will be wrong.
    """
    note = "" if scene_net else "A failure: no training photo looks like it"
    drawn = [make_scene(0, "test", number)[:2] for number in _SCENES]
    pictures = [(caption, _jpeg(image), note) for image, caption in drawn]
    if scene_net:
        return pictures
    photos = [(*photo, "") for photo in example_photos()]
    return [*photos, *pictures][: len(_SCENES)]


def example_photos() -> list[tuple[str, bytes]]:
    """Return the title and the JPEG bytes of each photo.

    The list is empty where a distribution packages Matplotlib's sample data separately.
    """
    # Importing Matplotlib takes 0.1 s of the page's start.
    path = Path(find_spec("matplotlib").origin).parent / _SAMPLE
    if not path.is_file():
        return []
    with Image.open(path) as photo:
        return [(title, _jpeg(photo.crop(region))) for title, region in _PHOTOS.items()]


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the example photos into FOLDER."""
    for number, (_, jpeg) in enumerate(example_photos(), start=1):
        atomic_write(folder / f"grace_hopper_{number}.jpg", jpeg)


if __name__ == "__main__":
    main()
