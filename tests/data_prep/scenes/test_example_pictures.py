"""Test the pictures that the demo page offers."""

import io

import pytest
from PIL import Image

from data_prep.scenes import example_pictures as module
from data_prep.scenes.example_pictures import (
    example_photos,
    example_pictures,
    main,
)


@pytest.mark.parametrize("scene_net", [True, False])
def test_examples_are_different_pictures_and_the_same_in_every_call(scene_net):
    pictures = example_pictures(scene_net)
    assert pictures == example_pictures(scene_net)
    assert len({name for name, _, _ in pictures}) == len(pictures) == 4
    for _, jpeg, _ in pictures:
        image = Image.open(io.BytesIO(jpeg))
        assert (image.format, image.mode) == ("JPEG", "RGB")
        assert len(jpeg) < 200_000


def test_scenes_are_named_by_their_captions():
    names = [name for name, _, note in example_pictures(True) if not note]
    assert len(names) == 4
    assert all(name.startswith("a ") for name in names)


def test_other_encoders_have_photos_and_one_scene():
    *photos, scene = example_pictures(False)
    assert [photo[:2] for photo in photos] == example_photos()
    assert scene[:2] == example_pictures(True)[0][:2]
    assert "failure" in scene[2]
    assert all("photo" in name and not note for name, _, note in photos)
    sizes = [Image.open(io.BytesIO(jpeg)).size for _, jpeg, _ in photos]
    assert sizes == [(512, 600), (512, 400), (300, 300)]


def test_the_photos_are_written_as_files(tmp_path):
    main([str(tmp_path / "photos")], standalone_mode=False)
    written = sorted((tmp_path / "photos").iterdir())
    assert [path.read_bytes() for path in written] == [j for _, j in example_photos()]


def test_without_the_sample_data_all_examples_are_scenes(monkeypatch):
    monkeypatch.setattr(module, "_SAMPLE", "absent")
    scenes = [scene[:2] for scene in example_pictures(True)]
    assert [scene[:2] for scene in example_pictures(False)] == scenes
