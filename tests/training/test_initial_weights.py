"""Starting from the weights of a model file, also with words that it lacks."""

import numpy as np
import pytest
import tiny_transformer
from checks import assert_equal_leaves
from refusals import refused
from tiny_captioner import WORDS, build, captions, outputs_of, photos

from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.training.initial_model import (
    WORD_AXES,
    copy_weights,
    extend_weight,
)

IDENTITY = {"encoder_identity": {"network": "VGG16", "layer": "block5_conv3"}}
LONGER = Vocabulary((*WORDS, "rex", "luna"))
COUNTS = {"a": 8, "b": 2, "rex": 4, "luna": 1}
K = len(WORDS)


@pytest.fixture
def saved(rng, tmp_path):
    model = build(rng, IDENTITY)
    model.set_annotation_scale(4.0)
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def extended(saved, rng, monkeypatch):
    monkeypatch.setattr("tiny_captioner.WORDS", LONGER.words)
    model = build(rng, IDENTITY)
    copy_weights(saved, model, COUNTS)
    return model


def test_the_logits_of_the_old_words_stay_as_they_are(saved, extended, rng):
    old = load_captioner(saved)
    assert len(extended.vocabulary) == len(old.vocabulary) + 2
    tokens, _ = captions(rng)
    a = photos(rng)
    ours, theirs = (outputs_of(m, a, tokens) for m in (extended, old))
    np.testing.assert_allclose(ours["logits"][..., :K], theirs["logits"], rtol=1e-5)
    np.testing.assert_allclose(ours["alpha"], theirs["alpha"], rtol=1e-5)


def test_rows_of_new_words_are_near_the_mean_of_the_old_words(rng):
    for name in ("embedding", "l_o"):
        axis = WORD_AXES[name]
        values = rng.standard_normal((K, 200) if axis == 0 else (200, K))
        found = np.moveaxis(extend_weight(name, values, LONGER, COUNTS), axis, 0)
        rows = np.moveaxis(values, axis, 0)
        np.testing.assert_array_equal(found[:K], rows)
        rows = rows[len(SPECIAL) :]
        away = (found[K:] - rows.mean(0)) / rows.std(0)  # (2, 200)
        np.testing.assert_allclose(away.std(1), 0.1, rtol=0.2)
        assert np.abs(away[0] - away[1]).max() > 0.1


def test_biases_of_new_words_follow_their_frequency(rng):
    biases = rng.standard_normal(K)
    found = extend_weight("l_o_b", biases, LONGER, COUNTS)
    np.testing.assert_array_equal(found[:K], biases)
    a, b = WORDS.index("a"), WORDS.index("b")
    offset = (biases[a] - np.log(8) + biases[b] - np.log(2)) / 2
    np.testing.assert_allclose(found[K:], offset + np.log([4, 1]))
    found = extend_weight("l_o_b", biases, LONGER, {"rex": 3})  # without a known word
    assert np.isfinite(found).all()
    assert found[K] > found[K + 1]  # rex occurs more often than luna


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
    assert_equal_leaves(hard.trainable_weights, soft.trainable_weights)
    assert float(hard.hard_attention.baseline) == 0
    hard.hard_attention.baseline.assign(-7)
    hard.save(tmp_path / "hard.safetensors")
    again = build(rng, IDENTITY, attention="hard")
    copy_weights(tmp_path / "hard.safetensors", again)
    assert float(again.hard_attention.baseline) == -7
    back = build(rng, IDENTITY)
    copy_weights(tmp_path / "hard.safetensors", back)
    np.testing.assert_array_equal(back.decoder.w_att, soft.decoder.w_att)
    assert float(back.annotation_scale) == 0.25


def test_a_model_of_the_mean_annotation_starts_one_with_attention(saved, rng):
    model = build(rng, IDENTITY, attention="mean")
    copy_weights(saved, model)
    source = build(np.random.default_rng(20150215))
    assert_equal_leaves(model.trainable_weights, source.trainable_weights)


VGG19 = {"encoder_identity": {"network": "VGG19", "layer": "x"}}


@pytest.mark.parametrize("words", [WORDS, LONGER.words])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lstm_width": 6}, r"must have the shapes of the settings, \('"),
        ({"selector": False}, r"a model of the same widths and switches"),
        # The weights have the same shapes.
        ({"prev2out": False}, "its prev2out must be False. Received: True; take a"),
        ({"decoder": "transformer"}, r"a model of the same widths and switches"),
        ({"arguments": VGG19}, "network VGG19 instead of VGG16"),
    ],
)
def test_other_encoders_decoders_widths_or_switches_are_refused(
    saved, rng, monkeypatch, words, changes, message
):
    monkeypatch.setattr("tiny_captioner.WORDS", words)
    transformer = {"transformer": tiny_transformer.settings()}
    model = build(rng, **{"arguments": IDENTITY | transformer, **changes})
    before = model.get_weights()
    with refused(ModelFileError, message):
        copy_weights(saved, model, COUNTS)
    assert_equal_leaves(model.get_weights(), before)


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        ((*WORDS[:-1], "z"), None),
        ((*WORDS[:-2], WORDS[-1], WORDS[-2], "rex"), COUNTS),  # in another order
    ],
)
def test_another_vocabulary_is_refused(saved, rng, monkeypatch, words, counts):
    monkeypatch.setattr("tiny_captioner.WORDS", words)
    with pytest.raises(ModelFileError, match="its vocabulary is not that of"):
        copy_weights(saved, build(rng, IDENTITY), counts)
