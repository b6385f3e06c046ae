"""A model run again where boxes are known: regions, layers and hidden places."""

import numpy as np
import pytest

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.region import smooth
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import SPECIAL, START, Vocabulary
from show_attend_tell.evaluation import probes
from show_attend_tell.evaluation.pointing import Target
from show_attend_tell.evaluation.probes import (
    first_name,
    hide_places,
    layer_note,
    measure_regions,
)
from show_attend_tell.reference.hypotheses import Hypotheses

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
        return np.array(rows, float)[:, None, None]  # the row is the cell


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
    found = measure_regions(
        model,
        Reader(),
        Split(
            "test",
            scenes,
            np.arange(len(scenes)),
            [],
            np.ones(len(scenes)),
            np.zeros(len(scenes), int),
        ),
        captions,
        {name: Target({}, region) for name, region in visible.items()},
        DecodingSettings(batch_size=2),
    )
    return model, found


WHOLE = (0, 0, 8, 8)


@pytest.mark.parametrize(
    ("visible", "regions", "shares"),
    [
        (  # shares of all regions, and of objects that are not named first
            {"one": WHOLE, "two": WHOLE},
            [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]],
            (2 / 3, 1.0),
        ),
        # boxes are mapped to the part that the encoder sees
        ({"one": (2, 0, 6, 4)}, [[1, 0, 1, 0], [0, 1, 0, 1]], (1.0, 1.0)),
        ({}, [], (None, None)),
    ],
)
def test_shares_are_those_of_the_regions_of_visible_objects(
    scenes, visible, regions, shares
):
    model, found = measure(scenes, **visible)
    assert model.regions == regions
    assert found == dict(zip(("region_control", "region_other"), shares, strict=True))


VOCABULARY = Vocabulary((*SPECIAL, "a", "red", "circle", "star"))


class LayeredModel:
    """Layer 1 looks at the first cell of 2 x 2, layer 2 at the photo's feature."""

    grid, vocabulary = (2, 2), VOCABULARY

    def __init__(self):
        self.inputs = []

    def attention_heads(self, features, tokens):
        self.inputs += tokens.tolist()
        B, T = tokens.shape
        heads = np.zeros((B, 2, 3, T, 4))
        heads[:, 0, :, :, 0] = 1
        for b in range(B):
            heads[b, 1, :, :, int(features[b, 0, 0])] = 1
        return heads


@pytest.fixture
def layered():
    photos = [
        photo("p", ("red circle", (0, 0, 5, 5))),  # cell 0
        photo("q", ("star", (5, 5, 10, 10))),  # cell 3
        photo("r", ("star", (5, 5, 10, 10))),  # without a target
    ]
    return Split(
        "val", photos, np.array([0, 3, 1]), [[]] * 3, np.ones(3), np.zeros(3, int)
    )


TARGETS = {
    "p": Target({("red", "circle"): [(0, 0, 5, 5)]}, (0, 0, 10, 10)),
    "q": Target({("star",): [(5, 5, 10, 10)]}, (0, 0, 10, 10)),
}
CAPTIONS = {"p": "a red circle", "q": "a star", "r": "a star"}


@pytest.mark.parametrize("batch", [1, 64])
def test_the_note_has_the_hits_of_every_layer_and_head(layered, monkeypatch, batch):
    monkeypatch.setattr(probes, "_BATCH", batch)
    model = LayeredModel()
    hits, mass = layer_note(model, Reader(), layered, CAPTIONS, TARGETS)
    first, second = ", ".join(["0.500"] * 3), ", ".join(["1.000"] * 3)
    assert hits == (
        f"pointing by layer of the decoder: 1: 0.500 (heads {first}), 2: 1.000 (heads "
        f"{second})"
    )
    inside = smooth(np.eye(4)[0], (2, 2))[0]  # of the attention to the peak's cell
    assert f"2: {inside:.3f} (heads" in mass
    a, red, star = VOCABULARY.encode(["a", "red", "star"])
    assert [row[:3] for row in model.inputs][0] == [START, a, red]
    assert model.inputs[1][:2] == [START, a]
    assert star not in np.ravel(model.inputs[1][:2])


def test_a_model_without_heads_and_captions_without_objects_have_no_note(layered):
    model, nothing = LayeredModel(), dict.fromkeys(CAPTIONS, "a")
    assert layer_note(model, Reader(), layered, nothing, TARGETS) == ()
    model.attention_heads = lambda *arguments: None
    assert layer_note(model, Reader(), layered, CAPTIONS, TARGETS) == ()


class SeeingModel:
    """At step t its logits are t + 1 times the mean annotation.

    It looks at the last cell where the word before is "red" or "a".
    """

    grid, vocabulary = (2, 2), VOCABULARY

    def __call__(self, inputs):
        a, (B, T) = inputs["annotations"], inputs["tokens"].shape
        logits = np.zeros((B, T, len(VOCABULARY)))
        logits += a.mean(axis=1)[:, None] * np.arange(1, T + 1)[:, None]
        before = np.isin(inputs["tokens"], VOCABULARY.encode(["red", "a"]))
        return {"logits": logits, "alpha": np.eye(4)[np.where(before, 3, 1)]}


class Annotations:
    """Annotations (B, L, K) of rows of a file."""

    def __init__(self, values):
        self.values = values

    def read(self, rows):
        return self.values[list(rows)]


@pytest.mark.parametrize("batch", [1, 64])
def test_hidden_locations_are_the_mean_of_the_others(layered, monkeypatch, batch):
    monkeypatch.setattr(probes, "_BATCH", batch)
    values = np.random.default_rng(1).normal(size=(4, 4, len(VOCABULARY)))
    found = hide_places(SeeingModel(), Annotations(values), layered, CAPTIONS, TARGETS)
    assert found.keys() == {"p", "q"}
    for name, row, word, t, cell in (("p", 0, "circle", 2, 0), ("q", 3, "star", 1, 3)):
        (id_,) = VOCABULARY.encode([word])

        def log_p(a, id_=id_, t=t):
            logits = (t + 1) * a.mean(axis=0)
            return logits[id_] - np.log(np.exp(logits).sum())

        falls = []
        for k in range(4):
            hidden = values[row].copy()
            hidden[k] = np.delete(values[row], k, axis=0).mean(axis=0)
            falls.append(log_p(values[row]) - log_p(hidden))
        hidden_object, hidden_attended, hidden_random = found[name][0]
        assert hidden_object == pytest.approx(falls[cell])
        assert hidden_attended == pytest.approx(falls[3])
        assert np.isclose(hidden_random, falls).any()


def test_the_mean_of_others_is_exact_where_a_sum_of_float16_overflows():
    values = np.random.default_rng(2).uniform(900, 1100, (2, 196, 3))
    annotations = values.astype(np.float16)
    order = np.zeros((2, 196))
    order[:, 5] = 1
    hidden = probes.hide(annotations, order, np.array([1, 1]))
    assert hidden.dtype == np.float16
    others = np.delete(annotations, 5, axis=1).astype(float)
    np.testing.assert_allclose(hidden[:, 5], others.mean(axis=1), rtol=5e-4)
    np.testing.assert_array_equal(np.delete(hidden, 5, axis=1), others)


def test_captions_without_objects_have_no_hidden_locations(layered):
    values = np.zeros((4, 4, len(VOCABULARY)))
    nothing = dict.fromkeys(CAPTIONS, "a")
    found = hide_places(SeeingModel(), Annotations(values), layered, nothing, TARGETS)
    assert [each.shape for each in found.values()] == [(0, 3), (0, 3)]
