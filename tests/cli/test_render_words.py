"""The verb ``render-words``, and ``prepare`` of an experiment that reads."""

from types import SimpleNamespace

from made_up_words import FONTS, crop_files, write_archive

from show_attend_tell.cli import preparation
from show_attend_tell.config.words import WordSettings
from show_attend_tell.data.words import WordData


def options(tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text("hotel\nstop\n")
    return ["--fonts", FONTS, "--words", listed, "--workers", 1]


def test_words_are_rendered_into_a_folder(run, tmp_path):
    out = tmp_path / "out"
    counts = ["--count", 20, "--validation", 5, "--seed", 3]
    code, printed, _ = run("render-words", "--out", out, *counts, *options(tmp_path))
    assert code == 0
    assert f"look at {out / 'contact_sheet.png'}" in printed
    assert len(WordData.open(out, "train")) == 20
    assert len(WordData.open(out, "val")) == 5


def test_absent_fonts_words_and_photos_are_one_line_each(run, tmp_path):
    out, rest = tmp_path / "out", options(tmp_path)
    for option in ("--fonts", "--words", "--photos"):
        code, _, printed = run(
            "render-words", "--out", out, *rest, option, tmp_path / "absent"
        )
        errors = [li for li in printed.splitlines() if not li.startswith("only ")]
        assert (code, len(errors)) == (1, 1)
        assert errors[0].startswith(f"error: {tmp_path / 'absent'}: no such ")
    assert not out.exists()


def test_prepare_reads_the_crops_of_an_experiment_that_reads(
    run, tmp_path, monkeypatch
):
    write_archive(tmp_path / "IIIT5K_train.zip", crop_files())
    settings = WordSettings("crops", "iiit5k", validation=4)
    experiment = SimpleNamespace(task="read", data=settings)
    monkeypatch.setattr(preparation, "load_settings", lambda *_, **__: experiment)
    code, printed, _ = run("prepare", "--data", tmp_path, "--work", tmp_path / "work")
    assert (code, printed.splitlines()[0]) == (0, "train: 6 words")
    assert len(WordData.open(tmp_path / "work" / "crops", "val")) == 4
