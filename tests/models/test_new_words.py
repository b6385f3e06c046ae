"""Weights for words that a model was not trained on."""

import numpy as np
import pytest
from tiny_captioner import WORDS, build, captions, outputs_of, photos

from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.models.initial_weights import (
    WORD_AXES,
    copy_weights,
    extend_weight,
)
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError

IDENTITY = {"encoder_identity": {"network": "VGG16", "layer": "block5_conv3"}}
LONGER = Vocabulary((*WORDS, "rex", "luna"))
COUNTS = {"a": 8, "b": 2, "rex": 4, "luna": 1}
K = len(WORDS)


@pytest.fixture
def saved(rng, tmp_path):
    build(rng, IDENTITY).save(tmp_path / "model.keras")
    return tmp_path / "model.keras"


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


def test_biases_of_new_words_are_finite_without_a_known_word(rng):
    found = extend_weight("l_o_b", rng.standard_normal(K), LONGER, {"rex": 3})
    assert np.isfinite(found).all()
    assert found[K] > found[K + 1]  # rex occurs more often than luna


def test_words_in_another_order_are_refused(saved, rng, monkeypatch):
    words = (*WORDS[:-2], WORDS[-1], WORDS[-2], "rex")
    monkeypatch.setattr("tiny_captioner.WORDS", words)
    with pytest.raises(ModelFileError, match="its vocabulary is not that of"):
        copy_weights(saved, build(rng, IDENTITY), COUNTS)


def test_other_widths_are_refused_with_new_words_too(saved, rng, monkeypatch):
    monkeypatch.setattr("tiny_captioner.WORDS", LONGER.words)
    with pytest.raises(ModelFileError, match="of the same widths and switches"):
        copy_weights(saved, build(rng, IDENTITY, lstm_width=6), COUNTS)
