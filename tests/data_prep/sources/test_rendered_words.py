"""Words are prepared by the settings of an experiment, rendered or read."""

import json
from types import SimpleNamespace

import pytest
from made_up_words import FONTS, crop_bytes, crop_files, write_archive

from data_prep.prepare import prepare
from data_prep.sources.rendered_words import load_grounds
from show_attend_tell.config.words import WordSettings
from show_attend_tell.data.words import WordData
from show_attend_tell.runtime.errors import DataError, WordsError


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("hotel\nstop\n")
    return path


def settings(listed, **changes):
    keys = {"count": 30, "validation": 5, "fonts": str(FONTS), "words": str(listed)}
    return SimpleNamespace(data=WordSettings("made-up", "words", **{**keys, **changes}))


def test_rendered_words_are_prepared_once(tmp_path, listed):
    lines = prepare(settings(listed), None, tmp_path).lines()
    assert lines[:2] == ["train: 30 words", "val: 5 words"]
    assert lines[2].startswith("rendered from 2 words in ")
    assert f"look at {tmp_path / 'made-up' / 'contact_sheet.png'}" in lines
    assert len(WordData.open(tmp_path / "made-up", "train")) == 30
    again = prepare(settings(listed), None, tmp_path)
    assert again.lines()[2].startswith("already rendered from 2 words")


@pytest.mark.parametrize("key", ["fonts", "words", "photos"])
def test_an_absent_file_of_the_settings_is_named(tmp_path, listed, key):
    absent = tmp_path / "absent"
    with pytest.raises((DataError, WordsError), match=f"{absent}: no such ") as error:
        prepare(settings(listed, **{key: str(absent)}), None, tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("on_problem", ["skip", "refuse"])
def test_crops_of_photos_are_prepared_with_their_problems(tmp_path, on_problem):
    files = crop_files()
    files["train.tags"] += b"\ntrain/99_1.png absent"
    path = write_archive(tmp_path / "IIIT5K_train.zip", files)
    experiment = SimpleNamespace(data=WordSettings("crops", "iiit5k", validation=4))
    arguments = experiment, path, tmp_path / "work", on_problem
    if on_problem == "refuse":
        with pytest.raises(DataError, match="missing crop: 1"):
            prepare(*arguments)
        return
    lines = prepare(*arguments).lines()
    assert lines[:2] == ["train: 6 words", "val: 4 words"]
    assert "skipped: missing crop: 1 (train/99_1.png)" in lines
    rows = (tmp_path / "work/crops/words.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["path"].endswith(".jpg")
    assert (tmp_path / "work/crops/contact_sheet.png").is_file()


def test_grounds_are_photos_that_can_be_decoded(tmp_path):
    assert load_grounds(None) == []
    with pytest.raises(DataError, match="absent: no such folder"):
        load_grounds(tmp_path / "absent")
    (tmp_path / "b.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="with 1 files .* none of them readable"):
        load_grounds(tmp_path)
    (tmp_path / "a.jpg").write_bytes(crop_bytes(50, (1200, 600)))
    (found,) = load_grounds(tmp_path)
    assert found.shape == (200, 400)
    assert abs(int(found[5, 5]) - 50) <= 2
