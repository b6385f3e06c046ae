"""Figures and pages of captions."""

import pytest
from full_disk import files_of_at_most
from made_up_captions import make_caption

from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.visualization.attention_figure import (
    caption_figure,
    draw_figures,
)
from show_attend_tell.inference.visualization.pages import write_attention_page

DRAW = {"": caption_figure}


def test_figures_are_drawn_for_captions_and_never_overwrite_each_other(tmp_path):
    paths = ("one/a.png", "b.jpg", "two/A.gif")
    results = [make_caption(path=path) for path in paths]
    results.insert(1, Failure("broken.jpg", "broken.jpg: no photo"))
    drawn = list(draw_figures(results, tmp_path / "figures", DRAW, ["png"]))
    assert [result for result, _ in drawn] == results
    names = [[file.name for file in files] for _, files in drawn]
    assert names == [["a.png"], [], ["b.png"], ["A-2.png"]]
    assert all(file.is_file() for _, files in drawn for file in files)


def test_figures_of_the_longest_names_are_drawn(tmp_path):
    stem = "ä" * 125 + "x"  # 251 bytes, and 4 of the suffix
    paths = [f"{folder}/{stem}.jpg" for folder in ("one", "two")] + ["x" * 255]
    results = [make_caption(path=path) for path in paths]
    drawn = list(draw_figures(results, tmp_path, DRAW, ["png"]))
    names = [files[0].name for _, files in drawn]
    assert names == ["ä" * 122 + ".png", "ä" * 121 + "-2.png", "x" * 245 + ".png"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(names)


@pytest.mark.parametrize("name", ["a.png", "a.pdf", "a.html"])
def test_a_full_disk_is_an_error_that_names_the_file_and_keeps_an_earlier_one(
    tmp_path, name
):
    results, kind = [make_caption(path="a.jpg")], name.partition(".")[2]

    def write():
        if kind == "html":
            list(write_attention_page(results, tmp_path / name))
        else:
            list(draw_figures(results, tmp_path, DRAW, [kind]))

    write()
    earlier = (tmp_path / name).read_bytes()
    with files_of_at_most(300), pytest.raises(OSError, match="too large") as caught:
        write()
    assert caught.value.filename == str(tmp_path / name)
    assert list(tmp_path.iterdir()) == [tmp_path / name]
    assert (tmp_path / name).read_bytes() == earlier
