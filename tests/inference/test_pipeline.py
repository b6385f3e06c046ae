"""``import show_attend_tell as sat``: load a model, caption a photo, look at it."""

import numpy as np
import pytest
from PIL import Image
from speaking_captioner import ENCODER, make_captioner

import show_attend_tell as sat
from show_attend_tell.runtime.errors import CaptionError, ModelFileError


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with one run."""
    runs = tmp_path_factory.mktemp("runs")
    (runs / "tiny").mkdir()
    make_captioner(sat.Encoder(ENCODER)).save(runs / "tiny" / "model.keras")
    return runs


@pytest.fixture(scope="module")
def model(runs):
    return sat.load(runs / "tiny" / "model.keras")


@pytest.fixture(scope="module")
def photo(tmp_path_factory, model):
    rng = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("photos") / "a photo.png"
    Image.fromarray(rng.integers(0, 256, (40, 60, 3), np.uint8)).save(path)
    return path


def test_a_caption_has_words_numbers_and_attention(model, photo):
    caption = model.caption(photo)
    T = len(caption.words)
    assert caption.text == " ".join(caption.words)
    assert caption.log_prob < 0
    assert caption.attention.shape == (T, *model.captioner.grid)
    assert caption.beta.shape == (T,)
    assert caption.alternatives[0].attention.shape[1:] == model.captioner.grid


def test_the_photo_is_shown_in_its_proportions(model, photo):
    height, width = model.caption(str(photo)).view.shape[:2]
    assert abs(height - width) <= 1  # the centre, cut out by the encoder's "crop"
    assert height <= 40


def test_a_caption_shows_itself_in_jupyter(model, photo):
    assert model.caption(photo)._repr_html_().startswith("<iframe")


def test_models_are_found_by_file_folder_and_name(model, runs, photo, monkeypatch):
    expected = model.caption(photo, beam=1).text
    monkeypatch.chdir(runs)
    for name, more in (("tiny", {}), ("tiny", {"runs": runs}), (runs / "tiny", {})):
        assert sat.load(name, **more).caption(photo, beam=1).text == expected


def test_what_cannot_be_captioned_is_said_in_one_line(model, tmp_path, photo):
    with pytest.raises(CaptionError, match="no such photo"):
        model.caption(tmp_path / "absent.jpg")
    with pytest.raises(CaptionError, match="`photo` must be a file. Received: the fol"):
        model.caption(tmp_path)
    with pytest.raises(CaptionError, match="`beam` at least 1"):
        model.caption(photo, beam=0)
    with pytest.raises(ModelFileError, match="no such model"):
        sat.load("absent", runs=tmp_path)
