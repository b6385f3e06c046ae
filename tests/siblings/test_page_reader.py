"""The reader of the page: loaded from the package, and refusing empty crops."""

import pytest
from PIL import Image
from tiny_page_reader import random_reader, tiny_page_reader
from tiny_reader import drawn_crop

from show_attend_tell.runtime.errors import PhotoError
from show_attend_tell.siblings import pretrained
from show_attend_tell.siblings.export import export_smaller
from show_attend_tell.siblings.page_reader import PageReader


def test_an_exported_reader_is_that_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    assert not pretrained.is_reader_shipped()
    random_reader().save(tmp_path / "full.keras")
    export_smaller(tmp_path / "full.keras", tmp_path / "read_words.keras", True)
    assert pretrained.is_reader_shipped()
    found = PageReader.shipped().read(Image.fromarray(drawn_crop("stop")))
    assert len(found["attention"]) == len(found["word"]) > 0


def test_an_image_of_one_brightness_is_refused_in_one_line():
    with pytest.raises(PhotoError, match="must show a word") as caught:
        tiny_page_reader().read(Image.new("RGB", (300, 100), (90, 90, 90)))
    assert "\n" not in str(caught.value)
