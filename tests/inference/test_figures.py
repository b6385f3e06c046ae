"""Figures and pages of captions, from Python and from the command line."""

import numpy as np
import pytest
from made_up_captions import make_caption
from PIL import Image
from speaking_captioner import ENCODER, make_captioner

from show_attend_tell.cli import main as cli
from show_attend_tell.inference import captioning as caption
from show_attend_tell.inference.figures import draw, figure_of
from show_attend_tell.inference.result import Failure
from show_attend_tell.models.encoder import Encoder


def test_figures_are_drawn_for_captions_and_never_overwrite_each_other(tmp_path):
    paths = ("one/a.png", "b.jpg", "two/A.gif")
    results = [make_caption(path=path) for path in paths]
    results.insert(1, Failure("broken.jpg", "broken.jpg: no photo"))
    drawn = list(draw(results, tmp_path / "figures", formats=["png"]))
    assert [result for result, _ in drawn] == results
    names = [[file.name for file in files] for _, files in drawn]
    assert names == [["a.png"], [], ["b.png"], ["A-2.png"]]
    assert all(file.is_file() for _, files in drawn for file in files)


def test_a_figure_shows_words_numbers_and_chosen_locations():
    one = make_caption("two stars", (5, 2), locations=np.array([5, -1]))
    panels = figure_of(one).axes
    assert [axes.texts[0].get_text() for axes in panels[1:]] == ["two", "stars"]
    assert panels[2].texts[1].get_text() == "p 0.50   β 0.80"
    assert [len(axes.patches) > 0 for axes in panels] == [False, True, False]


def test_figures_are_drawn_on_the_view_or_else_on_the_square():
    with_view = make_caption()
    assert with_view.picture is with_view.view
    without = make_caption(view=None)
    assert without.picture is without.square


@pytest.mark.parametrize(
    ("chosen", "expected"), [([4, 0], [4, 0]), ([-1, -1], None), ([], None)]
)
def test_locations_are_told_where_attention_chose_one_a_word(chosen, expected):
    found = caption._looked_at(np.array(chosen, int))
    assert (found if found is None else found.tolist()) == expected


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model's file, a folder with a photo and a broken one."""
    folder = tmp_path_factory.mktemp("files")
    make_captioner(Encoder(ENCODER)).save(folder / "model.keras")
    (folder / "photos").mkdir()
    pixels = np.random.default_rng(5).integers(0, 256, (40, 48, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "photos" / "a.png")
    (folder / "photos" / "broken.jpeg").write_bytes(b"\xff\xd8\xff not really")
    return folder


@pytest.fixture
def run(capsys, files):
    """Run the verb; returns exit code and the lines of standard error."""

    def run(*arguments) -> tuple[int, list[str]]:
        model = ("--model", files / "model.keras")
        try:
            cli.main(["caption", *map(str, (*model, *arguments))])
            code = 0
        except SystemExit as stop:
            code = stop.code
        return code, capsys.readouterr().err.splitlines()

    return run


def test_the_verb_draws_figures(run, files, tmp_path):
    where = tmp_path / "figures"
    code, err = run("--attention", where, files / "photos" / "a.png")
    assert code == 0
    assert sorted(p.name for p in where.iterdir()) == ["a.pdf", "a.png"]
    assert f"figure: {where / 'a.png'}" in err


@pytest.mark.parametrize(("theme", "ground"), [("light", 255), ("dark", 20)])
def test_the_verb_draws_in_the_format_and_theme_asked_for(
    run, files, tmp_path, theme, ground
):
    options = ("--attention", tmp_path, "--format", "png", "--theme", theme)
    assert run(*options, files / "photos" / "a.png")[0] == 0
    (only,) = tmp_path.iterdir()
    assert only.name == "a.png"
    with Image.open(only) as picture:
        assert picture.convert("RGB").getpixel((0, 0))[0] == ground


def test_the_verb_writes_one_page_for_all_photos(run, files, tmp_path):
    page = tmp_path / "page.html"
    code, err = run("--html", page, files / "photos")
    assert code == 1  # for the photo that is broken
    assert err[-1] == f"page: {page}"
    assert page.read_text("utf-8").count('class="photo"') == 1


def test_alternatives_have_attention_of_their_own_and_the_view_its_shape(files):
    found = caption.caption_paths(files / "model.keras", [files / "photos" / "a.png"])
    (one,) = found
    for other in one.alternatives:
        T = len(other.words)
        assert other.text == " ".join(other.words)
        assert other.attention.shape == (T, *one.attention.shape[1:])
        assert other.beta.shape == other.word_log_probs.shape == (T,)
    height, width = one.view.shape[:2]
    assert abs(height - width) <= 1  # the square in the middle of 48 x 40
    small = Image.fromarray(one.view).resize(one.square.shape[:2])
    assert np.abs(np.asarray(small, float) - one.square).mean() < 20
