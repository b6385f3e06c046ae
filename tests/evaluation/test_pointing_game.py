"""Mentions of objects, their hits, the pointing score and exact captions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.evaluation.pointing_game import (
    cell_centre,
    find_mentions,
    is_exact,
    pointing_statistic,
)

WORDS = "a red circle above a blue square".split()
OBJECTS = (
    {"name": "red circle", "box": [0, 0, 40, 40]},
    {"name": "blue square", "box": [60, 60, 100, 100]},
)
PHOTO = (0.0, 0.0, 100.0, 100.0)


def attention(cells: dict[int, int], steps: int = 8, locations: int = 16) -> np.ndarray:
    """Return uniform attention with a peak at ``cells[step]``."""
    alpha = np.full((steps, locations), 1.0 / locations)
    for step, cell in cells.items():
        alpha[step, cell] += 0.1
    return alpha


def test_peaks_inside_the_box_at_the_noun_are_hits():
    found = find_mentions(WORDS, attention({2: 5, 6: 10}), (4, 4), OBJECTS, PHOTO)
    assert [(m.name, m.step, m.cell, m.hit) for m in found] == [
        ("red circle", 2, (1, 1), True),
        ("blue square", 6, (2, 2), True),
    ]


def test_a_peak_in_the_box_of_the_other_object_is_a_miss():
    found = find_mentions(WORDS, attention({2: 15, 6: 0}), (4, 4), OBJECTS, PHOTO)
    assert [mention.hit for mention in found] == [False, False]


def test_the_peak_at_the_colour_is_ignored():
    found = find_mentions(WORDS, attention({1: 5, 2: 15}), (4, 4), OBJECTS[:1], PHOTO)
    assert [mention.hit for mention in found] == [False]


def test_names_that_are_not_in_the_photo_are_ignored():
    words = "a green circle above a red square".split()
    assert find_mentions(words, attention({}), (4, 4), OBJECTS, PHOTO) == []


def test_a_name_without_its_first_word_is_not_a_mention():
    assert find_mentions(["circle"], attention({}), (4, 4), OBJECTS, PHOTO) == []


def test_with_two_objects_of_one_name_either_box_is_a_hit():
    twins = (OBJECTS[0], {"name": "red circle", "box": [60, 0, 100, 40]})
    for cell in (0, 3):
        found = find_mentions(WORDS[:3], attention({2: cell}), (4, 4), twins, PHOTO)
        assert [mention.hit for mention in found] == [True]


def test_the_map_of_a_cropped_photo_covers_only_its_region():
    region = (50.0, 0.0, 150.0, 100.0)
    found = find_mentions(WORDS[:3], attention({2: 0}), (4, 4), OBJECTS, region)
    assert found[0].point == (62.5, 12.5)
    assert not found[0].hit


@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.floats(0, 500),
    st.floats(1, 500),
)
def test_centres_of_cells_are_even_over_the_region(rows, columns, start, extent):
    region = (start, 2 * start, start + extent, 2 * start + 3 * extent)
    centres = np.array(
        [
            cell_centre((row, column), (rows, columns), region)
            for row in range(rows)
            for column in range(columns)
        ]
    )
    np.testing.assert_allclose(
        centres.mean(0), [start + extent / 2, 2 * start + 1.5 * extent], rtol=1e-9
    )
    assert (centres[:, 0] > region[0]).all()
    assert (centres[:, 1] < region[3]).all()


@pytest.mark.parametrize("shape", [(6, 16), (7, 15), (112,)])
def test_attention_of_another_shape_raises_a_value_error(shape):
    with pytest.raises(ValueError, match="`alpha` must have shape"):
        find_mentions(WORDS, np.zeros(shape), (4, 4), OBJECTS, PHOTO)


def test_the_score_is_the_share_of_all_nouns():
    hit = find_mentions(WORDS, attention({2: 5, 6: 10}), (4, 4), OBJECTS, PHOTO)
    miss = find_mentions(WORDS, attention({2: 15, 6: 10}), (4, 4), OBJECTS, PHOTO)
    assert pointing_statistic([hit, miss]).score() == 0.75


def test_exact_captions_equal_one_reference_word_for_word():
    assert is_exact(WORDS, [["a"], tuple(WORDS)])
    assert not is_exact(WORDS[:-1], [WORDS])
    assert not is_exact([*WORDS, "and"], [WORDS])
