"""The pictures that the demo page offers."""

import io

import pytest
from PIL import Image

from data_prep.scenes.example_pictures import example_pictures


@pytest.mark.parametrize("scenes", [True, False])
def test_examples_are_different_photos_and_the_same_every_time(scenes):
    pictures = example_pictures(scenes)
    assert pictures == example_pictures(scenes)
    assert len({name for name, _ in pictures}) == len(pictures) == 4
    for _, jpeg in pictures:
        image = Image.open(io.BytesIO(jpeg))
        assert (image.format, image.mode) == ("JPEG", "RGB")
        assert len(jpeg) < 200_000


def test_scenes_are_named_by_their_captions():
    names = [name for name, _ in example_pictures(True)]
    assert all(name.startswith("a ") and "drawn" not in name for name in names)
