"""The programs that compare decoders and draw siblings refuse files in one line."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_captioner as tiny
import tiny_run

from show_attend_tell.config.settings import experiment_to_toml

PROGRAMS = Path(__file__).parents[2] / "research"


def run(monkeypatch, program, *arguments):
    """Run a program as its file is run."""
    monkeypatch.setattr(sys, "argv", [program, *map(str, arguments)])
    runpy.run_path(str(PROGRAMS / program), run_name="__main__")


@pytest.fixture
def compare(tmp_path, monkeypatch):
    """Return a function that compares models with the data of a tiny experiment."""
    tiny_run.prepare(tmp_path)
    file = tmp_path / "tiny.toml"
    file.write_text(experiment_to_toml(tiny_run.experiment()))
    folders = ("--work", tmp_path, "--runs", tmp_path)

    def function(*arguments):
        run(monkeypatch, "decoder_comparison.py", file, *arguments, *folders)

    return function


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Return a function that saves a tiny captioner with a last word."""

    def save(word):
        with monkeypatch.context() as patch:
            patch.setattr(tiny, "WORDS", (*tiny.WORDS[:-1], word))
            arguments = {"encoder_identity": tiny_run.IDENTITY}
            built = tiny.build(np.random.default_rng(1), arguments)
        file = tmp_path / f"{word}.safetensors"
        built.save(file)
        return file

    return save


def test_models_are_compared_word_by_word(compare, model, capsys):
    compare(f"one={model('g')}", f"two={model('g')}")
    printed = capsys.readouterr().out
    assert "| one and two, in common | 1.00 |" in printed
    # The captions have fewer words than the table has columns.
    assert len({line.count("|") for line in printed.splitlines()}) == 1


def test_models_of_two_vocabularies_are_refused(compare, model):
    with pytest.raises(SystemExit, match="^error: .*another vocabulary"):
        compare(f"one={model('g')}", f"two={model('h')}")


def test_a_photo_of_another_split_is_refused_before_models_read(compare, model):
    with pytest.raises(SystemExit, match="^error: `photo` must be the id of a photo"):
        compare(f"one={model('g')}", "--photo", "photo-00")


def test_an_absent_model_is_named_in_one_line(compare):
    with pytest.raises(SystemExit, match="^error: .*no such model") as ended:
        compare("one=absent")
    assert "\n" not in ended.value.code


def test_a_model_without_a_label_is_wrong_usage(compare, capsys):
    with pytest.raises(SystemExit, match="2"):
        compare("absent")
    assert "must be LABEL=MODEL. Received: 'absent'" in capsys.readouterr().err


def test_a_model_without_prepared_digits_is_named_in_one_line(tmp_path, monkeypatch):
    file = tmp_path / "ram_mnist" / "model.safetensors"
    file.parent.mkdir()
    file.touch()
    folders = ("--work", tmp_path, "--runs", tmp_path)
    with pytest.raises(SystemExit, match="^error: .*run `prepare` first"):
        run(monkeypatch, "sibling_figures.py", *folders)
