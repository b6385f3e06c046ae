"""Starting from a trained model: what must fit, and what an error says."""

import numpy as np
import pytest
from tiny_captioner import WORDS, build

from show_attend_tell.model_file import ModelFileError, copy_weights

IDENTITY = {"encoder_identity": {"network": "VGG16", "layer": "block5_conv3"}}


@pytest.fixture
def saved(rng, tmp_path):
    model = build(rng, IDENTITY)
    model.set_annotation_scale(4.0)
    model.save(tmp_path / "model.keras")
    return tmp_path / "model.keras"


def test_all_weights_are_copied_whatever_the_dropout(saved):
    model = build(np.random.default_rng(5), IDENTITY, dropout=0.3)
    copy_weights(saved, model)
    for ours, theirs in zip(
        model.weights, build(np.random.default_rng(20150215)).weights, strict=True
    ):
        if ours.name == "annotation_scale":
            assert float(ours) == 0.25
        else:
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lstm_width": 6}, r"its weights must be the settings' own, \('"),
        ({"selector": False}, r"a model of the same widths and switches"),
    ],
)
def test_other_widths_or_switches_are_refused(saved, rng, changes, message):
    model = build(rng, IDENTITY, **changes)
    before = np.array(model.decoder.embedding)
    with pytest.raises(ModelFileError, match=message) as error:
        copy_weights(saved, model)
    assert "\n" not in str(error.value)
    np.testing.assert_array_equal(model.decoder.embedding, before)


def test_another_encoder_is_refused_by_its_name(saved, rng):
    model = build(rng, {"encoder_identity": {"network": "VGG19", "layer": "x"}})
    with pytest.raises(ModelFileError, match="network VGG19 instead of VGG16"):
        copy_weights(saved, model)


def test_another_vocabulary_is_refused(saved, rng, monkeypatch):
    monkeypatch.setattr("tiny_captioner.WORDS", (*WORDS[:-1], "z"))
    with pytest.raises(ModelFileError, match="its vocabulary is not that of"):
        copy_weights(saved, build(rng, IDENTITY))
