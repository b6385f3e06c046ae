"""Copying weights from a model file: requirements and error messages."""

import numpy as np
import pytest
from tiny_captioner import WORDS, build

from show_attend_tell.models.saving import copy_weights
from show_attend_tell.runtime.errors import ModelFileError

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


def test_a_soft_model_starts_a_hard_one_and_vice_versa(saved, rng, tmp_path):
    hard = build(np.random.default_rng(5), IDENTITY, attention="hard")
    copy_weights(saved, hard)
    soft = build(np.random.default_rng(20150215))
    for ours, theirs in zip(
        hard.trainable_weights, soft.trainable_weights, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert float(hard.hard_attention.baseline) == 0
    hard.hard_attention.baseline.assign(-7)
    hard.save(tmp_path / "hard.keras")
    again = build(rng, IDENTITY, attention="hard")
    copy_weights(tmp_path / "hard.keras", again)
    assert float(again.hard_attention.baseline) == -7
    back = build(rng, IDENTITY)
    copy_weights(tmp_path / "hard.keras", back)
    np.testing.assert_array_equal(back.decoder.w_att, soft.decoder.w_att)
    assert float(back.annotation_scale) == 0.25


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lstm_width": 6}, r"must have the shapes of the settings, \('"),
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
