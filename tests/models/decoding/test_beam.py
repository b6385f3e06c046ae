"""Beam search equals brute force, plain Python, greedy and itself compiled."""

from unittest import mock

import numpy as np
import pytest
from decoding_models import (
    END,
    FORBIDDEN,
    IDS,
    PAD,
    START,
    Markov,
    all_captions,
    captions_of,
    on_tensorflow,
    one_chain,
    random_tables,
    rescore,
)
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from keras import ops

from show_attend_tell.models.decoding.beam import beam_search, largest
from show_attend_tell.models.decoding.sampling import greedy


@pytest.mark.parametrize("length_normalisation", [0.0, 0.7, 1.0])
def test_beam_as_wide_as_the_tree_is_brute_force(rng, length_normalisation):
    tables = random_tables(rng, B=2, K=5)
    found = Markov(tables).run(
        beam_search, beam=24, max_words=4, length_normalisation=length_normalisation
    )  # 24: the continuations of all 8 prefixes of 3 words
    for b in range(2):
        captions = all_captions(tables[b], 4, allowed=(2, 3, 4))
        assert len(captions) == 15
        best = sorted(
            captions,
            key=lambda words: -captions[words] / len(words) ** length_normalisation,
        )
        assert captions_of(found, b) == best
        log_probs = np.array([captions[words] for words in best])
        np.testing.assert_allclose(found.log_probs[b, :15], log_probs, rtol=1e-5)
        lengths = np.array([len(words) for words in best])
        np.testing.assert_array_equal(found.lengths[b, :15], lengths)
        np.testing.assert_allclose(
            found.scores[b, :15], log_probs / lengths**length_normalisation, rtol=1e-5
        )


@pytest.mark.parametrize("N", [50, 769, 1280, 5003])
@pytest.mark.parametrize("distinct", [3, 40, 10_000])  # few: many values are equal
def test_the_largest_values_are_those_of_a_stable_sort(rng, N, distinct):
    values = rng.integers(0, distinct, (4, N)).astype("f4")
    values[1, : N - 2] = -np.inf  # fewer finite values than are looked for
    found, index = largest(ops.convert_to_tensor(values), 3)
    order = np.argsort(-values, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(index, order)
    np.testing.assert_array_equal(found, np.take_along_axis(values, order, axis=1))


def reference_search(table, W, T, p, allowed):
    """Beam search for one photo in plain Python, without any early exit.

    Returns words and log-probability of each hypothesis, best first.
    """
    live, finished = [((), 0.0)], []
    for _ in range(T):
        grown = [
            ((*words, w), total + float(table[words[-1] if words else START, w]))
            for words, total in live
            for w in allowed
        ]
        grown.sort(key=lambda item: -item[1])
        finished += [item for item in grown[:W] if item[0][-1] == END]
        live = [item for item in grown if item[0][-1] != END][:W]
    finished.sort(key=lambda item: -item[1] / len(item[0]) ** p)
    return (finished or live)[:W]


@limits(max_examples=5)
@given(
    st.integers(0, 2**31),
    st.integers(2, 4),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.sampled_from([0.3, 1.0, 3.0]),
)
def test_early_exit_never_changes_the_result(seed, W, p, sharpness):
    B = 2  # few, because a search continues while any photo can improve
    tables = random_tables(np.random.default_rng(seed), B, 7, sharpness)
    found = Markov(tables).run(beam_search, beam=W, max_words=5, length_normalisation=p)
    for b in range(B):
        expected = reference_search(tables[b], W, 5, p, allowed=range(2, 7))
        log_probs = [total for _, total in expected]
        ours = found.log_probs[b, : len(expected)]
        np.testing.assert_allclose(ours, log_probs, rtol=1e-5)
        # Words are scored again, not compared: of two that tie either may be kept.
        found_words = captions_of(found, b)
        assert len(set(found_words)) == len(expected)
        again = [rescore(tables[b], words) for words in found_words]
        np.testing.assert_allclose(again, log_probs, rtol=1e-5)


@pytest.mark.parametrize("length_normalisation", [0.0, 1.0])
def test_beam_of_one_is_greedy(rng, length_normalisation):
    tables = random_tables(rng, B=40, K=8)
    model = Markov(tables)
    beam = model.run(
        beam_search, beam=1, max_words=6, length_normalisation=length_normalisation
    )
    expected = model.run(greedy, max_words=6)
    assert 0 < expected.finished.sum() < 40
    for name in set(beam._fields) - {"scores"}:
        np.testing.assert_allclose(
            getattr(beam, name), getattr(expected, name), rtol=1e-6, err_msg=name
        )
    np.testing.assert_allclose(
        beam.scores, beam.log_probs / beam.lengths**length_normalisation, rtol=1e-6
    )


def test_forbidden_words_are_never_written_and_the_others_not_renormalised(rng):
    tables = random_tables(rng, B=5, K=6)
    tables[:, :, 3] += 10  # by far the best word
    found = Markov(tables).run(
        beam_search, beam=4, max_words=5, forbidden=(PAD, START, 3)
    )
    for b in range(5):
        captions = captions_of(found, b)
        assert captions
        for words, log_prob in zip(captions, found.log_probs[b], strict=False):
            assert not set(words) & {PAD, START, 3}
            assert log_prob == pytest.approx(rescore(tables[b], words), rel=1e-5)


def test_equal_captions_are_ordered_by_the_smaller_id():
    uniform = one_chain(np.full((6, 6), 1 / 6))
    found = Markov(uniform).run(beam_search, beam=4, max_words=2)
    assert captions_of(found, 0) == [(END,), (3, END)]


@pytest.mark.skipif(not on_tensorflow, reason="other backends trace the loop")
def test_search_stops_once_no_live_caption_can_win():
    likely_end = one_chain([[0, 0, 0.9, 0.06, 0.04]] * 5)
    model = Markov(likely_end)
    step = mock.Mock(wraps=model.step)
    settings = {"beam": 2, "max_words": 50, "forbidden": FORBIDDEN, **IDS}
    beam_search(step, model.initial_state(), 1, **settings)
    assert step.call_count == 2  # 0.9, then 0.06 * 0.9 against 0.06 * 0.06
    settings["length_normalisation"] = 1.0
    beam_search(step, model.initial_state(), 1, **settings)
    assert step.call_count > 2 + 2  # a long caption could still have the better mean


def test_a_model_without_state_and_with_half_precision(rng):
    table = ops.convert_to_tensor(random_tables(rng, 1, 6)[0])

    def step(tokens, state):
        alpha = ops.cast(ops.one_hot(tokens, 6), "float16")
        log_probs = ops.cast(ops.take(table, tokens, axis=0), "float16")
        extras = {"alpha": alpha, "beta": alpha[..., 0], "locations": tokens}
        return log_probs, state, extras

    found = beam_search(step, {}, 3, beam=2, max_words=4, **IDS)
    assert ops.shape(found.alpha) == (3, 2, 4, 6)
    assert ops.dtype(found.log_probs) == "float32"
