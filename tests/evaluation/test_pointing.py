"""Pointing: mentions, hits, mass and controls, boxes of people, statistics."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from refusals import refused

from show_attend_tell.data.manifest import Photo
from show_attend_tell.evaluation.pointing import (
    Target,
    cell_centres,
    find_mentions,
    find_targets,
    point,
    pointing_statistics,
    read_boxes,
)
from show_attend_tell.runtime.errors import EvaluationError

WORDS = "a red circle above a blue square".split()
WHOLE = (0.0, 0.0, 100.0, 100.0)
CIRCLE, SQUARE = ("red", "circle"), ("blue", "square")
SCENE = Target({CIRCLE: [(0, 0, 40, 40)], SQUARE: [(60, 60, 100, 100)]}, WHOLE)


def attention(cells: dict[int, int], steps: int = 8, locations: int = 16) -> np.ndarray:
    """Return uniform attention with a peak at ``cells[step]``."""
    alpha = np.full((steps, locations), 0.9 / locations)
    for step, cell in cells.items():
        alpha[step, cell] += 0.1
    return alpha


TWINS = Target({CIRCLE: [(0, 0, 40, 40), (60, 0, 100, 40)]}, WHOLE)
CROPPED = SCENE._replace(region=(50.0, 0.0, 150.0, 100.0))


@pytest.mark.parametrize(
    ("cells", "target", "expected"),
    [
        ({2: 5, 6: 10}, SCENE, [1, 1]),
        ({2: 15, 6: 0}, SCENE, [0, 0]),  # each in the other's box
        ({1: 5, 2: 15, 6: 10}, SCENE, [0, 1]),  # the peak at the colour is ignored
        ({2: 0}, TWINS, [1]),
        ({2: 3}, TWINS, [1]),
        ({2: 0}, CROPPED, [0, 0]),  # the map covers only the region that is seen
    ],
)
def test_a_peak_in_a_box_at_the_last_word_of_its_name_is_a_hit(cells, target, expected):
    found = point(WORDS, attention(cells), (4, 4), target)
    assert found[:, 0].tolist() == expected


def test_mentions_are_whole_names_in_the_order_of_the_caption():
    found = find_mentions(WORDS, SCENE)
    assert [(m.name, m.step) for m in found] == [("red circle", 2), ("blue square", 6)]
    assert find_mentions("a green circle above a red square".split(), SCENE) == []
    assert find_mentions(["circle"], SCENE) == []


def test_mass_and_controls_are_those_of_the_cells_whose_centres_are_inside():
    alpha = attention({2: 5}) / attention({2: 5}).sum(axis=1, keepdims=True)
    ((hit, mass, random, centre),) = point(WORDS[:3], alpha, (4, 4), SCENE)
    assert (hit, random, centre) == (1, 4 / 16, 0)
    assert mass == pytest.approx(0.1 + 0.9 * 4 / 16)
    middle = Target({CIRCLE: [(40, 40, 60, 60)]}, WHOLE)
    assert point(WORDS[:3], alpha, (4, 4), middle)[0, 2:].tolist() == [0, 1]


def test_maps_of_layers_and_heads_are_scored_like_single_maps(rng):
    alphas = rng.dirichlet(np.ones(16), (2, 3, 7))
    found = point(WORDS, alphas, (4, 4), SCENE)
    assert found.shape == (2, 3, 2, 4)
    alone = point(WORDS, alphas[1, 2], (4, 4), SCENE)
    np.testing.assert_allclose(found[1, 2], alone)


@given(st.integers(1, 20), st.integers(1, 20), st.floats(0, 500), st.floats(1, 500))
def test_centres_of_cells_are_even_over_the_region(rows, columns, start, extent):
    region = (start, 2 * start, start + extent, 2 * start + 3 * extent)
    centres = cell_centres((rows, columns), region)
    middle = [start + extent / 2, 2 * start + 1.5 * extent]
    np.testing.assert_allclose(centres.mean(0), middle, rtol=1e-9)
    assert (centres[:, 0] > region[0]).all()
    assert (centres[:, 1] < region[3]).all()


def test_every_mention_has_the_same_weight_in_the_scores():
    photos = [[[1, 0.5, 0.25, 0], [1, 0.5, 0.25, 1]], [[0, 0.2, 0.25, 1]]]
    scores = [np.array(photo) for photo in photos] + [np.zeros((0, 4))]
    found = {name: s.score() for name, s in pointing_statistics(scores).items()}
    expected = {"pointing": 2 / 3, "pointing_mass": 0.4}
    expected |= {"pointing_random": 0.25, "pointing_centre": 2 / 3}
    assert found == pytest.approx(expected)


IDENTITY = {"image_size": 8, "resize": "squash"}


@pytest.fixture
def photo(tmp_path):
    """A photo of 40 x 20 pixels with one object."""
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png")
    item = {"name": "red circle", "box": (0, 0, 4, 4)}
    return Photo("a.png", tmp_path / "a.png", "val", ("a",), objects=(item,))


def test_people_are_named_by_every_word_for_people_in_pixels(photo):
    targets, notes = find_targets([photo], IDENTITY, {"a.png": [(0.5, 0, 1, 0.5)]})
    assert notes == ()
    target = targets["a.png"]
    assert target.region == (0, 0, 40, 20)
    assert target.boxes[CIRCLE] == [(0, 0, 4, 4)]
    assert target.boxes[("man",)] == target.boxes[("players",)] == [(20, 0, 40, 10)]
    assert ("man",) not in find_targets([photo], IDENTITY)[0]["a.png"].boxes


def row(file="a.png", people=((0, 0, 1, 1),)) -> str:
    return json.dumps({"file": file, "people": people})


def test_boxes_of_the_photos_are_read_and_other_photos_ignored(tmp_path):
    path = tmp_path / "people.jsonl"
    separator = "\u2028"  # a character of names, at which str.splitlines splits
    unescaped = f'{{"file": "{separator}.png", "people": []}}'
    lines = [row(), row("photos/b.png", []), "", row("c.png"), unescaped]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read_boxes(path, ["a.png", "b.png", f"{separator}.png"])
    assert found == {"a.png": [(0, 0, 1, 1)], "b.png": [], f"{separator}.png": []}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "cannot be read"),
        ("{", "line 1: must have `file`"),
        ("[]", "line 1: must have `file`"),
        (row(people=[[0, 0, 1]]), "line 1: must have `file`"),
        (row(people=[[0, 0, 1, 1.5]]), "in shares"),
        (row(people=[[0.5, 0, 0.5, 1]]), "x0 < x1"),
        (row(people=[[0, 0, 1, True]]), "line 1: must have `file`"),
        (row(people="none"), "line 1: must have `file`"),
        (row() + "\n" + row(), "line 2: must have `file`, a name that no other line"),
        (row("b.png"), "must have boxes of photos of the split"),
        ("", "must have boxes of photos of the split"),
    ],
)
def test_malformed_boxes_are_an_error_of_one_line(tmp_path, content, message):
    path = tmp_path / "people.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(EvaluationError, message):
        read_boxes(path, ["a.png"])
    with refused(EvaluationError, "name a JSON Lines file of boxes"):
        read_boxes(tmp_path / "absent.jsonl", ["a.png"])
