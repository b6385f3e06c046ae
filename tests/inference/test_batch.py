"""Captions of folders into files: resuming, failures, the page."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from speaking_captioner import ENCODER, make_captioner

from show_attend_tell.cli import main as cli
from show_attend_tell.inference.batch import caption_album
from show_attend_tell.models import pretrained as shipped_model
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.runtime.errors import OutputFileError

NAMES = ["a b.png", "nested/été.jpg", "nested/花.webp", "z.png"]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    make_captioner(Encoder(ENCODER)).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "photos"
    (folder / "nested").mkdir(parents=True)
    rng = np.random.default_rng(5)
    for name in NAMES:
        pixels = rng.integers(0, 256, (5, 7, 3), np.uint8)
        picture = Image.fromarray(pixels).resize((48, 40), Image.Resampling.NEAREST)
        picture.save(folder / name)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff not really")
    return folder


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def run(*arguments):
    try:
        cli.main(["caption", *map(str, arguments)])
    except SystemExit as stop:
        return stop.code or 0
    return 0


def test_photos_come_as_rows_and_bad_ones_are_listed_and_skipped(
    model_file, folder, tmp_path, capsys
):
    out = tmp_path / "new" / "captions.jsonl"
    assert run(folder, "--model", model_file, "--out", out) == 1
    assert [row["path"] for row in rows(out)] == [str(folder / n) for n in NAMES]
    assert all(row["log_prob"] < 0 for row in rows(out))
    assert len({row["caption"] for row in rows(out)}) > 1
    said = capsys.readouterr()
    assert said.out == f"{out}: 4 captions written, 1 photos skipped\n"
    assert "broken.jpg: cannot be read as a photo" in said.err


def test_a_second_run_goes_on_and_ends_with_the_same_file(model_file, folder, tmp_path):
    whole = tmp_path / "whole.jsonl"
    caption_album(model_file, [folder], whole, shown=False)
    (folder / "broken.jpg").unlink()
    part = tmp_path / "part.jsonl"
    lines = whole.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    report = caption_album(model_file, [folder, folder / "z.png"], part, shown=False)
    assert (report.written, report.kept, report.failures) == (2, 2, ())
    assert [row["caption"] for row in rows(part)] == [
        row["caption"] for row in rows(whole)
    ]


def test_another_beam_is_not_mixed_in(model_file, folder, tmp_path):
    out = tmp_path / "captions.csv"
    caption_album(model_file, [folder], out, shown=False)
    with pytest.raises(OutputFileError, match="beam 3, and not by .* beam 1"):
        caption_album(model_file, [folder], out, beam=1, shown=False)


def test_the_page_shows_every_photo_with_a_text_to_paste(model_file, folder, tmp_path):
    out = tmp_path / "pages" / "captions.html"
    caption_album(model_file, [folder], out, shown=False)
    page = out.read_text("utf-8")
    for row in rows(out.with_suffix(".jsonl")):
        assert f"{row['caption'].capitalize()}." in page
    assert 'src="../photos/nested/%C3%A9t%C3%A9.jpg" alt="' in page
    assert "&lt;img src=&quot;../photos/a%20b.png&quot; alt=" in page
    assert "broken.jpg: cannot be read" in page
    assert "http" not in page


@pytest.mark.slow
def test_a_killed_run_is_continued_without_loss_or_repetition(
    model_file, folder, tmp_path
):
    for number in range(400):
        os.link(folder / "z.png", folder / f"copy-{number:03d}.png")
    out = tmp_path / "captions.jsonl"
    command = [sys.executable, "-m", "show_attend_tell", "caption", str(folder)]
    command += ["--model", str(model_file), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not out.exists() or out.stat().st_size < 2000:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = out.read_bytes().splitlines()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1  # one photo is broken
    paths = [row["path"] for row in rows(out)]
    assert len(paths) == len(set(paths)) == 404
    assert out.read_bytes().splitlines()[: len(before)] == before
    assert "were there" in done.stdout


def test_without_a_model_the_shipped_one_is_used_or_named_as_missing(
    model_file, folder, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(shipped_model, "SHIPPED", tmp_path / "absent.keras")
    assert run(folder) == 1
    assert capsys.readouterr().err.endswith("name its file with --model\n")
    monkeypatch.setattr(shipped_model, "SHIPPED", model_file)
    assert run(folder / "z.png") == 0
    assert capsys.readouterr().out.startswith(f"{folder / 'z.png'}: ")


@pytest.mark.parametrize("out", ["captions.txt", "captions"])
def test_an_unknown_ending_is_refused_before_any_work(folder, tmp_path, capsys, out):
    model = tmp_path / "model.keras"
    assert run(folder, "--model", model, "--out", tmp_path / out) == 1
    assert "`out` must end in .jsonl, .csv or .html" in capsys.readouterr().err
