"""Provide the pictures that the demo page and ``make demo`` offer: photos and scenes.

    python -m data_prep.scenes.example_pictures FOLDER

writes the photos into a folder.
"""

import io
from importlib.resources import files
from pathlib import Path

import click
from PIL import Image

from data_prep.scenes.scenes import make_scene
from show_attend_tell.runtime.files import atomic_write

_SCENES = (4, 11, 23, 42)  # numbers of test scenes
_FOLDER = files(__package__) / "photos"
# File, title and note of each photo; all are in the public domain or CC0 1.0, reduced
# to 640 pixels. The comment is the name of the file at commons.wikimedia.org. They come
# from the Debian package gcompris-qt-data 3.1.
PHOTOS = (
    ("sheep.jpg", "Sheep, photo: Rob Mitchell", ""),  # Sheep_(33625876592).jpg
    # Giraffe_courtship_(25657342808).jpg
    ("giraffes.jpg", "Giraffes, photo: Mike and Lara Wolfe", ""),
    ("cat.jpg", "Kitten, photo: Loliloli", ""),  # Spielendes_Kätzchen.JPG
    # Churchill_Wildlife_Management_Area_polar_bear30.JPG
    ("polar-bear.jpg", "Polar bear, photo: anonymous", "A failure: it sees a dog"),
    # Wikipedia_10_Guadalajara_-_Mariachi.jpg
    ("mariachi.jpg", "Mariachi, photo: Elidealista", "A failure: it sees a cell phone"),
)


def example_pictures(scene_net: bool) -> list[tuple[str, bytes, str]]:
    """Return example pictures.

    Args:
        scene_net: whether the encoder is SceneNet, whose examples are scenes. Other
            encoders are trained on photos: their examples are photos.

    Returns:
        The title of each picture, its JPEG bytes, and a note for a picture whose
        caption will be wrong.
    """
    if not scene_net:
        return [
            (title, (_FOLDER / name).read_bytes(), note) for name, title, note in PHOTOS
        ]
    scenes = [make_scene("test", number)[:2] for number in _SCENES]
    return [(caption, _jpeg(image), "") for image, caption in scenes]


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the example photos into FOLDER."""
    for name, _, _ in PHOTOS:
        atomic_write(folder / name, (_FOLDER / name).read_bytes())


if __name__ == "__main__":
    main()
