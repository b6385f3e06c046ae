"""Test the pictures that the demo page offers."""

import io
from pathlib import Path

import pytest
from PIL import Image

from data_prep.scenes.example_pictures import PHOTOS, example_pictures, main
from show_attend_tell.inference.pipeline import load

ROOT = Path(__file__).resolve().parents[3]
# Words of the captions; the notes name those of the wrong ones.
SHOWN = ("sheep", "giraffe", "cat", "dog", "cell phone")
RIGHT = 3


@pytest.mark.parametrize("scene_net", [True, False])
def test_examples_are_different_pictures_and_the_same_in_every_call(scene_net):
    pictures = example_pictures(scene_net)
    assert pictures == example_pictures(scene_net)
    names = {name for name, _, _ in pictures}
    assert len(names) == len(pictures) == 5 - scene_net
    assert all(name.startswith("a ") for name in names) or not scene_net
    for _, jpeg, _ in pictures:
        image = Image.open(io.BytesIO(jpeg))
        assert (image.format, image.mode) == ("JPEG", "RGB")
        assert len(jpeg) < 200_000


def test_photos_name_their_authors_and_the_last_ones_are_failures():
    pictures = example_pictures(False)
    assert all("photo: " in name for name, _, _ in pictures)
    notes = [note for _, _, note in pictures]
    assert not any(notes[:RIGHT])
    for note, shown in zip(notes[RIGHT:], SHOWN[RIGHT:], strict=True):
        assert note.endswith(shown)


@pytest.mark.slow
def test_captions_of_the_photos_are_right_but_the_last_ones():
    pipeline = load(engine="numpy")
    for (title, jpeg, _), shown in zip(example_pictures(False), SHOWN, strict=True):
        caption = pipeline.caption(jpeg)
        assert shown in caption.text, title
        assert caption.confidence > 0.3, title


def test_the_photos_are_written_as_files(tmp_path):
    main([str(tmp_path / "photos")], standalone_mode=False)
    written = {p.name: p.read_bytes() for p in (tmp_path / "photos").iterdir()}
    pictures = example_pictures(False)
    assert written == {p[0]: e[1] for p, e in zip(PHOTOS, pictures, strict=True)}
