"""Attention is drawn at its location, and figures are written to files and arrays."""

import matplotlib
import numpy as np
import pytest
from made_up_captions import make_caption
from PIL import Image

from show_attend_tell.inference.visualization.attention_figure import (
    UPSAMPLING,
    attention_figure,
    attention_map,
    caption_figure,
    figure_to_array,
    overlay,
    save_figure,
)

WORDS = ("a", "red", "circle", "costs", "$5")


def even(words: int, grid=(2, 3)) -> np.ndarray:
    return np.full((words, *grid), 1 / (grid[0] * grid[1]))


def gradient(side: int = 32) -> Image.Image:
    """A picture without two equal rows or columns."""
    row = np.linspace(60, 255, side)
    pixels = np.stack([row[:, None] + 0 * row, row + 0 * row[:, None]], axis=-1)
    pixels = np.concatenate([pixels, np.full((side, side, 1), 90)], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize("grid", [(2, 3), (5, 5), (14, 14)])
def test_the_map_of_one_cell_is_largest_inside_that_cell(grid):
    rows, columns = grid
    for index in range(rows * columns):
        found = attention_map(np.eye(rows * columns)[index].reshape(grid))
        assert found.shape == (rows * UPSAMPLING, columns * UPSAMPLING)
        peak = np.unravel_index(found.argmax(), found.shape)
        assert tuple(np.array(peak) // UPSAMPLING) == divmod(index, columns)


def test_even_attention_stays_even_up_to_the_edges():
    np.testing.assert_allclose(attention_map(even(1)[0]), 1 / 6)


def test_smoothing_keeps_all_attention(rng):
    alpha = rng.dirichlet(np.full(196, 0.1)).reshape(14, 14)
    total = attention_map(alpha).sum() / UPSAMPLING**2
    assert total == pytest.approx(1, abs=1e-3)


def test_mirroring_attention_mirrors_the_map(rng):
    alpha = rng.dirichlet(np.ones(12)).reshape(3, 4)
    mirrored = attention_map(alpha[:, ::-1])
    np.testing.assert_allclose(mirrored, attention_map(alpha)[:, ::-1])


def test_the_overlay_is_brightest_at_the_peak_of_attention():
    grey = np.full((56, 56, 3), 128, np.uint8)
    weights = attention_map(np.eye(196)[3 * 14 + 10].reshape(14, 14))
    drawn = overlay(grey, weights / weights.max())
    assert drawn.shape == (224, 224, 3)
    row, column = np.unravel_index(drawn[..., 0].argmax(), drawn.shape[:2])
    assert (row // 16, column // 16) == (3, 10)
    assert drawn[200, 20].max() < 40


def test_a_large_photo_keeps_its_size_under_the_map():
    assert overlay(np.zeros((300, 500, 3), np.uint8), np.ones((224, 224))).shape == (
        300,
        500,
        3,
    )


def test_the_photo_has_a_panel_and_so_has_each_word_with_its_probability_and_beta():
    beta = [0.25, 0.5, 0.75, 1, 0]
    figure = attention_figure(gradient(), WORDS, even(5), [0.5] * 5, beta)
    assert len(figure.axes) == 6
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(shown, np.asarray(gradient()))
    assert texts(figure)[0::2] == list(WORDS)
    assert texts(figure)[1::2][2] == "p 0.75   β 0.50"


def test_without_numbers_only_words_are_written_and_a_caption_may_be_empty():
    figure = attention_figure(np.asarray(gradient()), WORDS, even(5))
    assert [text for text in texts(figure) if text] == list(WORDS)
    assert len(attention_figure(gradient(), [], even(3)).axes) == 1


def test_the_figure_of_a_caption_shows_its_view_numbers_and_locations():
    caption = make_caption("two stars", (5, 2), locations=np.array([5, -1]))
    panels = caption_figure(caption).axes
    np.testing.assert_array_equal(panels[0].images[0].get_array(), caption.view)
    assert panels[2].texts[1].get_text() == "p 0.50   β 0.80"
    assert [len(axes.patches) > 0 for axes in panels] == [False, True, False]


@pytest.mark.parametrize("count", [1, 5, 7, 8, 20, 30])
def test_panels_never_overlap_and_stay_in_the_figure(count):
    figure = attention_figure(gradient(), ["word"] * count, even(count))
    boxes = [axes.get_position() for axes in figure.axes]
    assert all(0 <= b.x0 < b.x1 <= 1 and 0 <= b.y0 < b.y1 <= 1 for b in boxes)
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


@pytest.mark.parametrize("dark", [False, True])
def test_texts_stay_inside_their_panel_and_above_the_next_row(dark):
    words = ["internationalization-of-skateboards", "a"] * 10
    figure = attention_figure(
        gradient(), words, even(20), [0.123] * 20, [1.0] * 20, dark
    )
    figure_to_array(figure)
    for axes in figure.axes[1:]:
        panel = axes.get_window_extent()
        for text in axes.texts:
            extent = text.get_window_extent()
            assert panel.x0 <= extent.x0 <= extent.x1 <= panel.x1
            assert extent.y0 >= 0
            assert not any(extent.overlaps(o.get_window_extent()) for o in figure.axes)


@pytest.mark.parametrize("attention", [even(4), even(5)[:, 0]])
def test_attention_that_does_not_fit_the_words_is_refused(attention):
    with pytest.raises(ValueError, match="`attention` must .* Received: "):
        attention_figure(gradient(), WORDS, attention)


def test_saved_figures_keep_dots_in_names_and_leave_nothing_else(tmp_path):
    figure = attention_figure(gradient(), WORDS, even(5))
    files = save_figure(figure, tmp_path / "deep" / "photo.v1.jpg")
    assert [file.name for file in files] == ["photo.v1.jpg.png", "photo.v1.jpg.pdf"]
    assert sorted(files) == sorted((tmp_path / "deep").iterdir())
    with Image.open(files[0]) as picture:
        assert picture.size[0] > 1000
    assert files[1].read_bytes().startswith(b"%PDF")


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        figure = attention_figure(gradient(), WORDS, even(5))
        save_figure(figure, tmp_path / name)
    for kind in ("png", "pdf"):
        one, two = (tmp_path / f"{name}.{kind}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_drawing_changes_no_settings_of_matplotlib(tmp_path):
    before = dict(matplotlib.rcParams)
    figure = attention_figure(gradient(), WORDS, even(5), dark=True)
    save_figure(figure, tmp_path / "figure", ["png"])
    assert dict(matplotlib.rcParams) == before


def test_a_selected_location_is_outlined_in_its_cell():
    where = [0, 5, 2, -1, 3]
    figure = attention_figure(gradient(), WORDS, even(5), locations=where)
    for axes, location in zip(figure.axes[1:], where, strict=True):
        corners = {
            tuple(np.round(patch.get_bbox().bounds, 6)) for patch in axes.patches
        }
        row, column = divmod(location, 3)
        cell = tuple(np.round((column / 3, 1 - (row + 1) / 2, 1 / 3, 1 / 2), 6))
        assert corners == (set() if location < 0 else {cell})
    assert not figure.axes[0].patches


def test_a_photo_keeps_its_proportions_in_every_panel():
    for width, height in ((60, 40), (30, 90)):
        photo = np.zeros((height, width, 3), np.uint8)
        figure = attention_figure(photo, WORDS, even(5))
        for axes in figure.axes:
            box = axes.get_window_extent()
            assert box.height / box.width == pytest.approx(height / width)


@pytest.mark.parametrize(("words", "rows"), [(5, 1), (20, 3)])
def test_captions_wrap_into_rows(words, rows):
    figure = attention_figure(gradient(), ["a"] * words, even(words))
    tops = {round(axes.get_position().y1, 6) for axes in figure.axes}
    assert len(tops) == rows
