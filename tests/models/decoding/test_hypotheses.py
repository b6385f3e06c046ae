"""The hypotheses of a search: order, ends, numbers, attention."""

import numpy as np
import pytest
from decoding_models import (
    END,
    FORBIDDEN,
    PAD,
    START,
    Markov,
    captions_of,
    one_chain,
    random_tables,
    rescore,
    spelled_code,
)

from show_attend_tell.models.decoding.beam import beam_search
from show_attend_tell.models.decoding.sampling import greedy, sample


def test_without_an_end_the_best_live_captions_are_returned_unfinished(rng):
    tables = random_tables(rng, B=2, K=6)
    tables[0, :, END] = -np.inf
    found = Markov(tables).run(
        beam_search, beam=3, max_words=4, length_normalisation=1.0
    )
    assert not found.finished[0].any()
    assert found.finished[1, 0]
    np.testing.assert_array_equal(found.lengths[0], 4)
    assert END not in found.tokens[0]
    for words, log_prob in zip(captions_of(found, 0), found.log_probs[0], strict=True):
        assert log_prob == pytest.approx(rescore(tables[0], words), rel=1e-5)
    np.testing.assert_allclose(found.scores[0], found.log_probs[0] / 4, rtol=1e-6)


METHODS = {
    "beam": (beam_search, (), {"beam": 5, "max_words": 6}),
    "greedy": (greedy, (), {"max_words": 6}),
    "sample": (sample, (np.random.default_rng(3).random((20, 6), np.float32),), {}),
    "greedy, one word": (greedy, (), {"max_words": 1}),
    "sample, one word": (sample, (np.random.default_rng(3).random((20, 1), "f4"),), {}),
}


@pytest.mark.parametrize("name", METHODS)
def test_each_caption_ends_once_and_has_its_own_numbers(rng, name):
    K, B, (method, noise, settings) = 6, 20, METHODS[name]
    tables = random_tables(rng, B, K, sharpness=1.0)
    found = Markov(tables).run(method, *noise, **settings)
    assert found.finished.any()
    for b in range(B):
        for w, words in enumerate(captions_of(found, b)):
            n, log_prob = len(words), found.log_probs[b, w]
            assert END not in words[:-1]
            assert not set(words) & set(FORBIDDEN)
            assert found.finished[b, w] == (words[-1] == END)
            assert (found.tokens[b, w, n:] == PAD).all()
            assert log_prob == pytest.approx(rescore(tables[b], words), rel=1e-5)
            assert log_prob == pytest.approx(found.word_log_probs[b, w].sum(), rel=1e-5)
            for t in range(n):
                code = spelled_code(words, t, K)
                last = (START, *words)[t]
                np.testing.assert_array_equal(found.alpha[b, w, t], [code, b, last])
                assert found.beta[b, w, t] == code + 0.5
            assert not found.alpha[b, w, n:].any()
            assert not found.beta[b, w, n:].any()
            assert not found.word_log_probs[b, w, n:].any()


def test_slots_without_a_caption_are_empty_and_one_word_may_be_unfinished():
    chain = one_chain([[0, 0, 0.5, 0.3, 0.2]] * 5)
    found = Markov(chain).run(beam_search, beam=3, max_words=1)
    assert captions_of(found, 0) == [(END,)]
    np.testing.assert_array_equal(found.finished, [[True, False, False]])
    np.testing.assert_array_equal(found.log_probs[0, 1:], -np.inf)
    assert found.alpha.shape == (1, 3, 1, 3)

    only = one_chain([[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 1, 0]])
    found = Markov(only).run(beam_search, beam=3, max_words=6)
    assert captions_of(found, 0) == [(3, END)]
    np.testing.assert_array_equal(found.log_probs, [[0, -np.inf, -np.inf]])
    np.testing.assert_array_equal(found.tokens[0, 1:], PAD)
    assert not np.isnan(found.scores).any()

    endless = one_chain([[0, 0, 0, 0.6, 0.4]] * 5)
    found = Markov(endless).run(beam_search, beam=2, max_words=1)
    assert captions_of(found, 0) == [(3,), (4,)]
    assert not found.finished.any()
