"""Words rendered in parts: any number of processes, any interruption, same bytes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from made_up_words import FONTS, crop_bytes, renderer
from PIL import Image
from refusals import refused

from data_prep.prepare import prepare
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.siblings.words.data import Word, WordData
from show_attend_tell.siblings.words.rendering import prepare as parts
from show_attend_tell.siblings.words.rendering.prepare import (
    RECORD,
    SHEET,
    load_grounds,
    render_words,
    write_words,
)
from show_attend_tell.siblings.words.settings import WordSettings

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def short_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART", 20)


def render(folder, workers=1, train=50, **options):
    counts = {"train": train, "val": 15}
    return render_words(renderer(**options), counts, folder, workers)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_has_crops_words_a_record_and_a_contact_sheet(tmp_path):
    assert render(tmp_path)
    assert set(content(tmp_path)) == {"words.npy", "words.jsonl", RECORD, SHEET}
    source = renderer()
    for split, count in (("train", 50), ("val", 15)):
        data = WordData.open(tmp_path, split)
        assert len(data) == count
        for number in (0, count - 1):
            crop, word = source.render(split, number)
            assert data.words[number] == word
            np.testing.assert_array_equal(data.images[number], crop)
    record = json.loads((tmp_path / RECORD).read_text())
    assert record["families"] == ["DejaVu Sans", "DejaVu Serif"]


def test_words_are_rendered_again_where_another_source_has_replaced_them(tmp_path):
    assert render(tmp_path)
    rendered = content(tmp_path)
    assert not render(tmp_path)
    crops = np.zeros((2, 32, 100), np.uint8)
    rows = [Word("train", "stop", "1.png"), Word("val", "go", "2.png")]
    write_words(tmp_path, 2, [(crops, rows)])
    assert render(tmp_path)
    assert content(tmp_path) == rendered


@pytest.mark.nightly
def test_two_processes_write_the_same_bytes_as_one(tmp_path):
    assert render(tmp_path / "one")
    assert render(tmp_path / "two", workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.fixture
def rendered(monkeypatch):
    """Return a function that returns split and start of each part rendered so far."""
    render_part = mock.Mock(wraps=parts._render_part)
    monkeypatch.setattr(parts, "_render_part", render_part)
    made = render_part.call_args_list
    return lambda: [(call.args[1].split, call.args[1].start) for call in made]


def render_parts_alone(monkeypatch, folder):
    """Render into a folder, interrupted before its parts are put together."""
    with monkeypatch.context() as patch:
        interrupt = mock.Mock(side_effect=KeyboardInterrupt)
        patch.setattr(parts, "write_words", interrupt)
        with pytest.raises(KeyboardInterrupt):
            render(folder)


def test_an_interrupted_rendering_resumes_with_the_same_bytes(
    tmp_path, monkeypatch, rendered, capsys
):
    original = parts._render_part

    def stop(source, part):
        if part.start == 40:
            raise KeyboardInterrupt
        return original(source, part)

    counts = {"train": 50, "val": 15}
    with monkeypatch.context() as patch:
        patch.setattr(parts, "_render_part", stop)
        with pytest.raises(KeyboardInterrupt):
            render_words(renderer(), counts, tmp_path / "cut", 1, progress=True)
    assert "40/65" in capsys.readouterr().err
    assert rendered() == [("train", 0), ("train", 20)]
    assert not (tmp_path / "cut/words.npy").exists()
    render(tmp_path / "cut")
    assert rendered()[2:] == [("train", 40), ("val", 0)]
    render(tmp_path / "whole")
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


@pytest.mark.nightly
def test_finished_parts_serve_another_number_of_words(tmp_path, monkeypatch, rendered):
    render_parts_alone(monkeypatch, tmp_path / "cut")
    before = len(rendered())
    render(tmp_path / "cut", train=70)
    assert rendered()[before:] == [("train", 40), ("train", 60)]
    render(tmp_path / "whole", train=70)
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


@pytest.mark.nightly
def test_rendered_words_are_not_rendered_again_unless_settings_change(tmp_path):
    assert render(tmp_path)
    before = content(tmp_path)
    assert not render(tmp_path)
    assert render(tmp_path, seed=1)
    changed = content(tmp_path)
    assert changed["words.npy"] != before["words.npy"]
    (tmp_path / SHEET).unlink()
    assert render(tmp_path, seed=1)
    assert content(tmp_path) == changed


def test_a_damaged_part_is_named(tmp_path, monkeypatch):
    render_parts_alone(monkeypatch, tmp_path)
    part = next(tmp_path.glob(".parts-*/train-000000020-*.npz"))
    part.write_bytes(part.read_bytes()[:500])
    with pytest.raises(DataError, match="npz: cannot be read .*; delete it"):
        render(tmp_path)
    part.unlink()
    assert render(tmp_path)


def test_a_full_disk_is_named_before_rendering(tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.disk.free_bytes", lambda folder: 1000)
    with pytest.raises(DataError, match="rendered words need 416kB of disk space"):
        render(tmp_path)


CODE = """
import sys
from pathlib import Path
from made_up_words import renderer
from show_attend_tell.siblings.words.rendering.prepare import render_words
if __name__ == "__main__":
    render_words(renderer(), {"train": 100_000, "val": 10}, Path(sys.argv[1]), 2)
"""


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CODE)
    folders = (ROOT, ROOT / "tests/support", ROOT / "tests/siblings/support")
    path = os.pathsep.join(map(str, folders))
    errors = tmp_path / "errors.txt"
    with errors.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "words")],
            env={**os.environ, "PYTHONPATH": path},
            stderr=file,
        )
    try:
        while not list(tmp_path.glob("words/.parts-*/*.npz")):
            assert process.poll() is None, errors.read_text()
            time.sleep(0.2)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        workers = [int(pid) for pid in children.read_text().split()]
        assert len(workers) >= 2
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        time.sleep(0.2)  # until the time limit of tests


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
    with refused(DataError, f"{absent}: no such "):
        prepare(settings(listed, **{key: str(absent)}), None, tmp_path)


def test_photos_of_systems_are_no_grounds(tmp_path):
    for place in ("", "@eaDir", "$RECYCLE.BIN", "2019"):
        (tmp_path / place).mkdir(exist_ok=True)
        Image.new("L", (40, 30), 90).save(tmp_path / place / "a.png")
    assert len(load_grounds(str(tmp_path))) == 2


def test_grounds_are_photos_that_can_be_decoded(tmp_path):
    assert load_grounds("") == []
    with pytest.raises(DataError, match="absent: no such folder"):
        load_grounds(tmp_path / "absent")
    (tmp_path / "b.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="with 1 files .* none of them readable"):
        load_grounds(tmp_path)
    (tmp_path / "a.jpg").write_bytes(crop_bytes(50, (1200, 600)))
    (found,) = load_grounds(tmp_path)
    assert found.shape == (200, 400)
    assert abs(int(found[5, 5]) - 50) <= 2
