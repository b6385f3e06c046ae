"""Outputs of ``caption`` for unusual file names and for folders that are closed."""

import csv
import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hostile_photos import NAMES as HOSTILE_NAMES
from made_up_captions import make_caption

from show_attend_tell.inference import batch
from show_attend_tell.inference.journal import ENCODING
from show_attend_tell.inference.result import (
    apply_min_confidence,
    as_sentence,
    confidence_figures,
    confidence_word,
)
from show_attend_tell.inference.visualization.attention_figure import (
    caption_figure,
    draw_figures,
)
from show_attend_tell.runtime.errors import CaptionError

DRAW = {"": caption_figure}
NAMES = [os.fsdecode(name) + ".png" for name in HOSTILE_NAMES]
NAMES += [f"{name}.png" for name in ("a\r\nb", "a\n\nb", '"a,b";\t', "%41?#", "<!--")]


@pytest.fixture
def named(tmp_path, photo):
    """A folder of photos with these names."""
    folder = tmp_path / "named"
    folder.mkdir()
    for name in NAMES:
        shutil.copy(photo, folder / name)
    return folder


def test_every_name_is_in_every_output(run, named, tmp_path):
    wanted, total = sorted(str(named / name) for name in NAMES), len(NAMES)
    code, lines, err = run("--json", named)
    assert (code, err) == (0, "")
    assert [json.loads(line)["path"] for line in lines] == wanted
    for ending in (".jsonl", ".csv", ".html"):
        out = tmp_path / f"{ending[1:]}-\udcff\r{ending}"
        for count in (f"{total} captions", f"0 captions written, {total} already"):
            code, lines, _ = run("--out", out, named)
            assert code == 0
            assert f": {count} " in lines[-1]
        found = [
            json.loads(line)
            for line in out.with_suffix(".jsonl").read_bytes().splitlines()
        ]
        assert [row["path"] for row in found] == wanted
    with (tmp_path / "csv-\udcff\r.csv").open(newline="", **ENCODING) as file:
        assert [row["path"] for row in csv.DictReader(file)] == wanted
    page = tmp_path / "page\udcff.html"
    assert run("--html", page, named)[0] == 0
    assert page.read_text("utf-8").count('class="photo"') == total


def test_a_name_breaks_no_line_of_the_screen(run, tmp_path):
    folder = tmp_path / "damaged"
    folder.mkdir()
    codes = "\n\r\x1b[2K\x85\u2028"
    (folder / f"a{codes}é.png").write_bytes(b"no photo")
    for options in ((), ("--out", tmp_path / f"a{codes}.jsonl")):
        code, lines, err = run(*options, folder)
        assert code == 1
        assert f"{folder}/a\\n\\r\\x1b[2K\\x85\\u2028é.png: cannot be read" in err
        assert not set("\x1b\x85\u2028") & set(err)
        assert len(lines) == len(options) // 2
        assert all(line.isprintable() for line in lines)


def test_figures_are_named_after_every_name(run, named, tmp_path):
    names = NAMES[::6]
    figures = tmp_path / "figures"
    options = ("--attention", figures, "--format", "png")
    assert run(*options, *(named / name for name in names))[0] == 0
    assert sorted(os.listdir(figures)) == sorted(names)


def test_a_figure_replaces_no_photo(run, photo, tmp_path):
    content = photo.read_bytes()
    own = tmp_path / "own"
    own.mkdir()
    copies = [own / "a.png", own / "b.PNG"]
    for copy in copies:
        shutil.copy(photo, copy)
    for figures in (own, tmp_path / "absent" / os.pardir / "own"):
        # The figure of the other folder's photo would be the first to replace one.
        code, _, err = run("--attention", figures, photo, own)
        assert code == 2
        assert "--attention must be another folder" in " ".join(err.split())
    assert sorted(own.iterdir()) == copies
    # A figure in another format replaces no photo.
    assert run("--attention", own, "--format", "pdf", own)[0] == 0
    assert [copy.read_bytes() for copy in copies] == [content, content]


def test_a_page_of_somebody_else_is_kept_and_one_of_attention_replaced(
    run, photo, tmp_path
):
    page = tmp_path / "index.html"
    for content in (
        "<title>My own page</title>",
        "<title>Captions of 2 photos</title>",
    ):
        page.write_text(content)
        code, lines, err = run("--html", page, "--attention", tmp_path, photo)
        assert (code, lines) == (1, [])
        assert "must be absent, or a page of attention. Received: another file" in err
        assert err.count("\n") == 1
        assert page.read_text() == content
    assert list(tmp_path.iterdir()) == [page]
    page.write_bytes(b"")
    for _ in range(2):
        assert run("--html", page, photo)[0] == 0
        assert "<title>Attention of each word</title>" in page.read_text("utf-8")


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_a_picture_of_somebody_else_is_kept_and_a_figure_replaced(
    run, photo, tmp_path, kind
):
    figure = tmp_path / f"{photo.stem}.{kind}"
    heads = tmp_path / f"{photo.stem}-heads.{kind}"
    options = ("--attention", tmp_path, "--format", kind)
    for picture in (figure, heads):
        shutil.copy(photo, picture)
        code, lines, err = run(*options, "--heads", photo)
        assert (code, lines) == (1, [])
        assert err.startswith(f"error: {picture}: must be absent, or a figure of this ")
        assert err.count("\n") == 1
        assert picture.read_bytes() == photo.read_bytes()
        assert list(tmp_path.iterdir()) == [picture]
        picture.unlink()
    figure.write_bytes(b"")
    for _ in range(2):
        assert run(*options, photo)[0] == 0
        assert figure.stat().st_size > 1000


def test_a_figure_replaces_no_picture_that_came_after_the_start(tmp_path, photo):
    figures = draw_figures([make_caption(path=photo)], tmp_path, DRAW, ["png"])
    picture = tmp_path / f"{photo.stem}.png"
    shutil.copy(photo, picture)
    with pytest.raises(CaptionError, match="must be absent, or a figure"):
        list(figures)
    assert picture.read_bytes() == photo.read_bytes()


@pytest.fixture
def closed(photo):
    """A folder in which this user may not write, with a photo beside it."""
    folder = Path(tempfile.mkdtemp(prefix="closed-"))
    folder.chmod(0o755)
    shutil.copy(photo, folder / "a.png")
    (folder / "inside").mkdir()
    (folder / "inside").chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # the superuser may write in every folder
    try:
        yield folder / "inside"
    finally:
        os.seteuid(user)
        shutil.rmtree(folder)


def test_prune_keeps_the_rows_of_a_folder_that_is_closed(run, closed, monkeypatch):
    monkeypatch.setattr(batch, "made_by", lambda *arguments: "m")
    with tempfile.TemporaryDirectory() as place:  # of this user
        folder = Path(place)
        (folder / "shut").mkdir()
        for name in ("a.png", "b.png", "shut/c.png"):
            shutil.copy(closed.parent / "a.png", folder / name)
        out = folder / "captions.jsonl"
        run(folder, "--out", out)
        (folder / "b.png").unlink()
        (folder / "shut").chmod(0)
        _, lines, err = run(folder, "--out", out, "--prune")
        (folder / "shut").chmod(0o755)
        assert f"{folder}/shut: Permission denied" in err
        assert lines[-1].endswith("1 row of deleted photos removed")
        paths = [json.loads(line)["path"] for line in out.read_text().splitlines()]
        assert paths == [str(folder / "a.png"), str(folder / "shut" / "c.png")]


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--out", "a.jsonl"),
        ("--out", "a.csv"),
        ("--out", "a.html"),
        ("--out", "new/a.jsonl"),
        ("--html", "a.html"),
        ("--html", "new/a.html"),
        ("--attention", "."),
        ("--attention", "new"),
    ],
)
def test_a_closed_folder_is_one_line(run, closed, monkeypatch, option, name):
    monkeypatch.setattr(batch, "made_by", lambda *arguments: "m")
    code, _, err = run(option, closed / name, closed.parent / "a.png")
    assert code == 1
    assert err.count("\n") == 1
    assert str(closed) in err
    assert "Permission denied" in err


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a red circle .", "A red circle."),
        ("été", "Été."),
        ("", ""),
        (" . ", ""),
        ("a man 's hat", "A man's hat."),
        ("two men , one dog .", "Two men, one dog."),
        ("he does n't see it !", "He doesn't see it!"),
        ("a t-shirt & 2 's", "A t-shirt & 2's."),
        ("a 'sign ' .5", "A 'sign ' .5."),
    ],
)
def test_a_sentence_has_a_capital_and_a_full_stop(caption, expected):
    assert as_sentence(caption) == expected


@pytest.mark.parametrize(
    ("confidence", "word", "figures"),
    [
        (0.72, "likely", "0.72"),
        (0.718, "unsure", "0.718"),
        (0.7151, "unsure", "0.715"),
        (0.7199999, "unsure", "0.7199999"),
        (0.644, "unsure", "0.64"),
        (0.2, "unsure", "0.20"),
        (0.1999, "probably wrong", "0.1999"),
        (0.0, "probably wrong", "0.00"),
        (1.0, "likely", "1.00"),
        (0.999, "likely", "1.00"),
        (None, None, ""),
    ],
)
def test_a_confidence_never_contradicts_its_word(confidence, word, figures):
    assert confidence_word(confidence) == word
    assert confidence_figures(confidence) == figures


def test_a_confidence_that_is_left_out_is_below_the_limit_that_is_named():
    caption = dataclasses.replace(make_caption(), confidence=0.2996)
    assert apply_min_confidence(caption, 0.299) is caption
    reason = apply_min_confidence(caption, 0.3).reason
    assert reason.endswith("left out, its confidence 0.2996 is below 0.3")
