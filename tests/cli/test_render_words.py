"""The verb ``render-words``."""

import pytest
from made_up_words import FONTS

from show_attend_tell.cli.main import main
from show_attend_tell.data.words import WordData


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["render-words", *map(str, arguments)])
    return stopped.value.code


def options(tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text("hotel\nstop\n")
    return ["--fonts", FONTS, "--words", listed, "--workers", 1]


def test_words_are_rendered_into_a_folder(tmp_path, capsys):
    out = tmp_path / "out"
    counts = ["--count", 20, "--validation", 5, "--seed", 3]
    main(["render-words", "--out", str(out), *map(str, counts + options(tmp_path))])
    assert len(WordData.open(out, "train")) == 20
    assert len(WordData.open(out, "val")) == 5
    printed = capsys.readouterr().out
    assert f"look at {out / 'contact_sheet.png'}" in printed


def test_absent_fonts_and_words_are_one_line_each(tmp_path, capsys):
    out, rest = tmp_path / "out", options(tmp_path)
    assert run("--out", out, *rest, "--fonts", tmp_path / "absent") == 1
    assert run("--out", out, *rest, "--words", tmp_path / "absent") == 1
    assert run("--out", out, *rest, "--photos", tmp_path / "absent") == 1
    lines = capsys.readouterr().err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 3
    assert not out.exists()
    assert run() == 2
