"""Regions around objects: the object named first, and its shares."""

import numpy as np
import pytest

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.splits import Split
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.evaluation.region_control import (
    RegionControl,
    first_name,
    measure_region_control,
)

NAMES = ("red circle", "blue star", "star")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("a red circle above a blue star", "red circle"),
        ("a blue star above a red circle", "blue star"),
        ("a red star", "star"),
        ("a circle", None),
        ("", None),
    ],
)
def test_the_first_name_is_that_of_the_earliest_whole_name(words, expected):
    assert first_name(words.split(), NAMES) == expected


class Model:
    """A model of a 2 x 2 map that names the corner that a region covers."""

    grid = (2, 2)
    corners = ("red circle", "blue star", "green square", "green square")

    class vocabulary:  # noqa: D106
        @staticmethod
        def decode(row):
            return Model.corners[row[0]].split()

    def __init__(self):
        self.regions = []

    def generate(self, features, decoding, seeds, regions):
        assert len(features) == len(seeds) == len(regions) <= decoding.batch_size
        self.regions += regions.tolist()
        tokens = regions.argmax(-1)[:, None, None]
        return Hypotheses(tokens, *[None] * 8)


class Reader:
    def read(self, rows):
        return np.zeros((len(rows), 4, 1))


def photo(name, *objects):
    items = tuple({"name": n, "box": b} for n, b in objects)
    return Photo(name, f"{name}.png", "test", ("a",), objects=items)


@pytest.fixture
def scenes():
    return [
        photo("one", ("red circle", [0, 0, 4, 4]), ("blue star", [4, 0, 8, 4])),
        photo("two", ("blue star", [0, 4, 4, 8])),  # the model names a square there
        photo("unreadable", ("red circle", [0, 0, 4, 4])),
    ]


def measure(scenes, **visible):
    captions = {"one": "a red circle", "two": "a blue star", "unreadable": ""}
    model = Model()
    found = measure_region_control(
        model,
        Reader(),
        Split("test", scenes, np.arange(len(scenes)), []),
        captions,
        visible,
        DecodingSettings(batch_size=2),
    )
    return model, found


def test_shares_are_of_all_regions_and_of_objects_not_named_first(scenes):
    whole = (0, 0, 8, 8)
    model, found = measure(scenes, one=whole, two=whole)
    assert model.regions == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert found == RegionControl(every=2 / 3, other=1.0)


def test_boxes_are_mapped_to_the_part_that_the_encoder_sees(scenes):
    model, found = measure(scenes, one=(2, 0, 6, 4))
    assert model.regions == [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert found == RegionControl(1.0, 1.0)


def test_without_visible_objects_there_are_no_shares(scenes):
    assert measure(scenes)[1] == RegionControl(None, None)
