"""Test that split and number determine scenes, and scenes their captions."""

import functools
import itertools

import numpy as np
import pytest

from data_prep.scenes import scenes
from data_prep.scenes.drawing import COLOURS, SHAPES
from data_prep.scenes.scenes import SIDE, compose_caption, is_reserved, make_scene
from show_attend_tell.data.vocabulary import tokenize

NAMES = [f"{colour} {kind}" for colour in COLOURS for kind in SHAPES]


@functools.cache
def some_scenes(split: str = "train", count: int = 60):
    """Return the captions and objects of a few scenes, as lists of equal length."""
    made = [make_scene(split, number) for number in range(count)]
    return [caption for _, caption, _ in made], [objects for *_, objects in made]


def centre(item: dict) -> np.ndarray:
    x0, y0, x1, y1 = item["box"]
    return np.array([x0 + x1, y0 + y1]) / 2


def test_a_scene_has_the_same_bytes_whatever_the_number_of_scenes(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(scenes, "COUNTS", {"train": 1, "val": 1, "test": 2})
    few = scenes.write_scenes(tmp_path / "few")
    monkeypatch.setattr(scenes, "COUNTS", {"train": 3, "val": 2, "test": 3})
    more = scenes.write_scenes(tmp_path / "more")
    assert set(map(repr, few)) < set(map(repr, more))
    for photo in few:
        first, second = (tmp_path / at / photo.path for at in ("few", "more"))
        assert first.read_bytes() == second.read_bytes()


def test_a_limit_draws_the_first_scenes_of_each_split_only(tmp_path, monkeypatch):
    monkeypatch.setattr(scenes, "COUNTS", {"train": 3, "val": 1, "test": 2})
    photos = scenes.write_scenes(tmp_path, limit=2)
    names = [f"scene-{split}-00000" for split in ("train", "val", "test")]
    names += [f"scene-{split}-00001" for split in ("train", "test")]
    assert sorted(photo.id for photo in photos) == sorted(names)
    drawn = [path.stem for path in (tmp_path / "photos").iterdir()]
    assert sorted(drawn) == sorted(names)


def test_splits_and_numbers_draw_different_pictures():
    keys = itertools.product(scenes.SPLITS, (0, 1))
    pictures = [make_scene(*key)[0].tobytes() for key in keys]
    assert len(set(pictures)) == len(pictures)


def test_every_name_in_a_caption_is_an_object_in_the_order_of_mention():
    for caption, objects in zip(*some_scenes(), strict=True):
        text = " ".join(tokenize(caption))
        places = [text.index(item["name"]) for item in objects]
        assert places == sorted(places)
        assert len({item["name"] for item in objects}) == len(objects)
        assert sum(text.split().count(kind) for kind in SHAPES) == len(objects)


def test_exactly_the_relation_of_the_caption_holds_from_the_highest_to_the_lowest():
    assert {len(objects) for objects in some_scenes()[1]} == {1, 2, 3}
    for caption, objects in zip(*some_scenes(), strict=True):
        for one, other in itertools.pairwise(objects):
            across, down = centre(other) - centre(one)
            assert down >= 0.05 * SIDE
            relation = "above" if down > abs(across) else "left of"
            if relation == "left of" and across < 0:
                relation = "right of"
            assert f"{one['name']} {relation} a {other['name']}" in caption


def test_boxes_are_inside_the_picture_and_apart():
    for objects in some_scenes()[1]:
        boxes = np.array([item["box"] for item in objects])
        assert boxes.min() >= 0
        assert boxes.max() <= SIDE
        for one, two in itertools.combinations(boxes, 2):
            distance = np.abs(one[:2] + one[2:] - two[:2] - two[2:])
            assert (distance > 0.5 * (one[2:] - one[:2] + two[2:] - two[:2])).any()


def test_reserved_pairs_occur_in_held_out_scenes_only():
    def reserved(split):
        return [
            is_reserved(one["name"], two["name"])
            for objects in some_scenes(split)[1]
            for one, two in itertools.combinations(objects, 2)
        ]

    assert not any(reserved("train"))
    assert any(reserved("val"))
    assert any(reserved("test"))


def test_a_fifth_of_the_pairs_is_reserved_in_either_order():
    pairs = list(itertools.combinations(NAMES, 2))
    assert np.mean([is_reserved(*pair) for pair in pairs]) == pytest.approx(
        0.2, abs=0.02
    )
    assert all(is_reserved(one, two) == is_reserved(two, one) for one, two in pairs)


@pytest.mark.parametrize(
    ("names", "relations", "caption"),
    [
        (["cyan star"], [], "a cyan star"),
        (["red cross", "blue star"], ["above"], "a red cross above a blue star"),
        (
            ["red cross", "cyan star", "blue circle"],
            ["right of", "left of"],
            "a red cross right of a cyan star left of a blue circle",
        ),
    ],
)
def test_captions_have_the_documented_form(names, relations, caption):
    assert compose_caption(names, relations) == caption
