"""Greedy decoding and sampling: words, frequencies, seeds, compilation."""

import numpy as np
import pytest
from decoding_models import END, PAD, START, Markov, captions_of, random_tables
from scipy import stats

from show_attend_tell.models.decoding.sampling import greedy, sample


def uniform_noise(photos, words, seed):
    return np.random.default_rng(seed).random((photos, words), np.float32)


def test_greedy_takes_the_best_word_until_the_end(rng):
    tables = random_tables(rng, B=30, K=7)
    found = Markov(tables).run(greedy, max_words=5)
    for b in range(30):
        words = [START]
        while words[-1] != END and len(words) <= 5:
            words.append(2 + int(np.argmax(tables[b, words[-1], 2:])))
        assert captions_of(found, b) == [tuple(words[1:])]
    np.testing.assert_array_equal(found.scores, found.log_probs)


def test_greedy_takes_the_smallest_of_equal_ids():
    equal = Markov(np.zeros((1, 6, 6), "f4"))
    found = equal.run(greedy, max_words=2, forbidden=(PAD, START, END))
    np.testing.assert_array_equal(found.tokens, [[[3, 3]]])


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_sampled_frequencies_are_the_probabilities(rng, temperature):
    B, table = 4000, random_tables(rng, 1, 7, sharpness=1.0)
    found = Markov(np.repeat(table, B, axis=0)).run(
        sample, uniform_noise(B, 2, seed=5), temperature=temperature
    )
    first, second = found.tokens[:, 0, 0], found.tokens[:, 0, 1]
    for last, words in ((START, first), (4, second[first == 4])):
        p = np.exp(table[0, last, 2:].astype("f8") / temperature)
        counts = np.bincount(words, minlength=7)[2:]
        assert stats.chisquare(counts, p / p.sum() * len(words)).pvalue > 0.01


def test_a_low_temperature_is_greedy(rng):
    model = Markov(random_tables(rng, B=50, K=8))
    cold = model.run(sample, uniform_noise(50, 6, seed=1), temperature=1e-4)
    expected = model.run(greedy, max_words=6)
    for name, got, wanted in zip(cold._fields, cold, expected, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=name)


def test_one_seed_gives_one_result_and_rows_are_independent(rng):
    model = Markov(random_tables(rng, B=20, K=9, sharpness=0.5))
    noise = uniform_noise(20, 6, seed=1)
    found = model.run(sample, noise)
    again = model.run(sample, uniform_noise(20, 6, seed=1))
    other = model.run(sample, uniform_noise(20, 6, seed=2))
    np.testing.assert_array_equal(found.tokens, again.tokens)
    assert (found.tokens != other.tokens).any()
    alone = Markov(model.tables[7:8]).run(sample, noise[7:8])
    np.testing.assert_array_equal(alone.tokens[0], found.tokens[7])


@pytest.mark.parametrize("u", [0.0, np.nextafter(np.float32(1), np.float32(0))])
def test_impossible_words_are_not_sampled_at_the_edges_of_the_noise(u):
    K = 1000
    tables = np.full((1, K, K), -np.log(K), "f4")
    forbidden = (*range(5), *range(K - 5, K))
    found = Markov(tables).run(sample, np.full((1, 2), u, "f4"), forbidden=forbidden)
    assert not set(found.tokens.ravel().tolist()) & set(forbidden)
