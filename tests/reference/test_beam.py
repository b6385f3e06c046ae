"""Searches of one photo in NumPy return what the batched ones of Keras return."""

import numpy as np
import pytest
from decoding_models import FORBIDDEN, IDS, Markov, random_tables
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from show_attend_tell.models.decoding.beam import beam_search
from show_attend_tell.models.decoding.sampling import greedy, sample
from show_attend_tell.reference import beam

K = 6
RULES = beam.Rules(**IDS, forbidden=FORBIDDEN)


def step_of(table):
    """Return the step of decoding_models.Markov for one photo's table (K, K)."""

    def step(t, words, state):
        code = state[0]["code"] * K + words
        alpha = np.stack([code, np.zeros_like(code), words], axis=-1)
        extras = {"alpha": alpha, "beta": code + 0.5, "locations": code}
        return table[words], [{"code": code}], extras

    return step


def equal(table, found, method, *args, **settings):
    """Assert that NumPy's hypotheses of a photo are those of the batched method."""
    expected = Markov(table[None]).run(method, *args, **settings)
    for name, value, of_batch in zip(found._fields, found, expected, strict=True):
        np.testing.assert_allclose(value, of_batch[0], rtol=1e-5, err_msg=name)


def start():
    return [{"code": np.zeros(1, int)}]


@limits(max_examples=10)
@given(
    st.integers(0, 2**31),
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.7, 2.0]),
    st.booleans(),
)
def test_a_beam_keeps_the_same_hypotheses_ties_included(seed, W, T, p, ties):
    table = random_tables(np.random.default_rng(seed), 1, K)[0]
    if ties:
        table[:, 3:] = np.round(table[:, 3:4])
    settings = {"beam": W, "max_words": T, "length_normalisation": p}
    found = beam.beam_search(step_of(table), start(), RULES, **settings)
    equal(table, found, beam_search, **settings)


def test_greedy_writes_the_same_words(rng):
    for table in random_tables(rng, 6, K):
        found = beam.greedy(step_of(table), start(), RULES, max_words=5)
        equal(table, found, greedy, max_words=5)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_the_same_noise_samples_the_same_words(rng, temperature):
    for table in random_tables(rng, 6, K):
        noise = rng.random((1, 5), np.float32)
        step = step_of(table)
        found = beam.sample(step, start(), RULES, noise, temperature=temperature)
        equal(table, found, sample, noise, temperature=temperature)


def test_the_largest_values_are_those_of_a_stable_sort(rng):
    for count in (1, 4, 50):
        values = rng.integers(0, 5, 40).astype("f4")
        values[:20] = -np.inf
        order = np.argsort(-values, kind="stable")[:count]
        np.testing.assert_array_equal(
            beam.largest(values, count), order[values[order] > -np.inf]
        )
