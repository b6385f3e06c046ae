"""The search of words: greedy, beam, and the probability of given words."""

import itertools

import numpy as np
import pytest
from tiny_reader import TINY, VARIANTS, drawn_words, settings_of

from show_attend_tell.siblings.words.data import END, decode, encode_words
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.model import Reader

CROPS = drawn_words(5)[0]


def reader(variant=None, seed=0):
    model = Reader(settings_of(variant or {}), seed)
    rng = np.random.default_rng(seed)
    for weight in model.decoder.trainable_weights:
        weight.assign(weight + 0.3 * rng.standard_normal(weight.shape))
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [{}, *VARIANTS[:4:3]],
    ids=["attention", "independent", "rnn1"],
)
def test_a_found_word_has_the_probability_that_the_model_gives_it(variant):
    search = Searcher(reader(variant), beam=3, batch=4)
    found = search(CROPS)
    for row, crop in enumerate(CROPS):
        for w in range(3):
            if found.finished[row, w]:
                tokens = np.zeros((1, 24), np.int32)
                tokens[0] = found.tokens[row, w]
                log_p = search.log_probs(crop, tokens)[0]
                assert found.log_probs[row, w] == pytest.approx(log_p, abs=1e-3)


def test_a_batch_is_read_like_single_crops_and_alpha_sums_to_one():
    model = reader()
    together, single = Searcher(model, batch=5)(CROPS), Searcher(model, batch=1)(CROPS)
    np.testing.assert_array_equal(together.tokens, single.tokens)
    np.testing.assert_allclose(together.log_probs, single.log_probs, atol=1e-3)
    for row, length in enumerate(together.lengths[:, 0]):
        alpha = together.alpha[row, 0, :length]
        np.testing.assert_allclose(alpha.sum(-1), 1, atol=1e-4)


@pytest.mark.parametrize("beam", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_longest_word_ends_although_the_model_prefers_to_continue(beam):
    model = reader()
    bias = np.zeros(39, np.float32)
    bias[7], bias[END] = 20, -20
    model.decoder.output_bias.assign(bias)
    found = Searcher(model, beam)(CROPS)
    assert {len(decode(tokens)) for tokens in found.tokens[:, 0]} == {23}
    assert found.finished[:, 0].all()
    tokens = found.tokens[:1, 0]
    log_p = Searcher(model).log_probs(CROPS[0], tokens)[0]
    assert found.log_probs[0, 0] == pytest.approx(log_p, rel=1e-4)


def test_probabilities_of_given_words_do_not_depend_on_the_batch():
    model = reader()
    words = ["".join(pair) for pair in itertools.product("ab1", repeat=2)]
    tokens = encode_words(words)
    many = Searcher(model, batch=4).log_probs(CROPS[0], tokens)
    one = [Searcher(model, batch=1).log_probs(CROPS[0], tokens[k : k + 1])[0]
           for k in (0, 8)]  # fmt: skip
    assert many.shape == (9,)
    np.testing.assert_allclose(many[[0, 8]], one, atol=1e-4)
    assert TINY.attend == "places"
