"""Pointing by layer: mentions in the captions, batches, and models without heads."""

import numpy as np
import pytest

from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.evaluation import layer_pointing
from show_attend_tell.evaluation.layer_pointing import layer_note, pointing_by_layer

VOCABULARY = Vocabulary((*SPECIAL, "a", "red", "circle", "star"))
WHOLE = (0, 0, 10, 10)


class Model:
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


class Reader:
    def read(self, rows):
        return np.array(rows, float)[:, None, None]  # the row is the cell


def photo(name, thing, box):
    return Photo(name, name, "val", ("x",), ({"name": thing, "box": box},))


@pytest.fixture
def data():
    photos = [
        photo("p", "red circle", (0, 0, 5, 5)),  # cell 0
        photo("q", "star", (5, 5, 10, 10)),  # cell 3
        photo("r", "star", (5, 5, 10, 10)),  # not visible
    ]
    return Split("val", photos, np.array([0, 3, 1]), [[]] * 3)


CAPTIONS = {"p": "a red circle", "q": "a star", "r": "a star"}


@pytest.mark.parametrize("batch", [1, 64])
def test_the_score_of_each_layer_is_its_share_of_hits(data, monkeypatch, batch):
    monkeypatch.setattr(layer_pointing, "_BATCH", batch)
    model, visible = Model(), {"p": WHOLE, "q": WHOLE}
    found = pointing_by_layer(model, Reader(), data, CAPTIONS, visible)
    assert found == [0.5, 1.0]
    start, a, red, star = VOCABULARY.encode(["<start>", "a", "red", "star"])
    assert [row[:3] for row in model.inputs][0] == [start, a, red]
    assert model.inputs[1][:2] == [start, a]
    assert star not in np.ravel(model.inputs[1][:2])


def test_a_model_without_heads_and_captions_without_objects_have_no_score(data):
    model = Model()
    nothing = dict.fromkeys(CAPTIONS, "a")
    assert pointing_by_layer(model, Reader(), data, nothing, {"p": WHOLE}) == []
    assert layer_note([]) == ()
    model.attention_heads = lambda *arguments: None
    assert pointing_by_layer(model, Reader(), data, CAPTIONS, {"p": WHOLE}) == []


def test_the_note_has_every_layer_in_one_line():
    note = layer_note([0.5, 1.0])
    assert note == ("pointing by layer of the decoder: 1: 0.500, 2: 1.000",)
