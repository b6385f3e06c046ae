"""The models of a confidence against their equations, and what separates them."""

import tracemalloc

import numpy as np
import pytest
from refusals import refused

from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.training.confidence import (
    _content_words,
    fit_calibration,
    fit_logistic,
    fit_photo_space,
    fit_tag_calibration,
    measure_familiarity,
    measure_quality,
    rank_auc,
)

optimize = pytest.importorskip("scipy.optimize")


def made_up(N=80, F=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, F))
    y = (rng.random(N) < 1 / (1 + np.exp(-(x @ [1.0, -2.0, 0.0] + 0.5)))).astype(float)
    return x, y, rng.uniform(0.1, 2, N)


def test_the_fit_minimises_the_penalised_cross_entropy():
    x, y, s = made_up()
    ridge = 0.02

    def loss(w):
        z = x @ w[:-1] + w[-1]
        terms = np.logaddexp(0, z) - y * z
        return (s * terms).sum() / s.sum() + ridge / 2 * (w[:-1] @ w[:-1])

    expected = optimize.minimize(loss, np.zeros(4), method="BFGS", tol=1e-10).x
    np.testing.assert_allclose(fit_logistic(x, y, s, ridge), expected, atol=1e-4)


def test_the_fit_of_separable_groups_is_finite():
    x = np.concatenate([np.full((9, 2), 3.0), np.full((9, 2), -3.0)])
    y = np.repeat([1.0, 0.0], 9)
    w = fit_logistic(x, y, np.ones(18), 0.01)
    assert np.isfinite(w).all()
    assert w[0] > 0


def test_the_area_is_the_share_of_ordered_pairs():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 9, 40) / 4, rng.integers(0, 6, 30) / 4
    pairs = [(p > n) + 0.5 * (p == n) for p in a for n in b]
    assert rank_auc(a, b) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("groups", [([], [1.0]), ([1.0], []), ([], [])])
def test_an_empty_group_has_no_area(groups):
    with refused(ValueError, "must not be empty"):
        rank_auc(*map(np.array, groups))


def test_content_words_are_those_of_the_presence_of_all_words():
    rng = np.random.default_rng(0)
    N = 600
    words = [f"w{k}" for k in range(40)]
    # In 0, 1, 2 (a three hundredth) and so on photos; w9 in 180, three tenths.
    times = [0, 1, 2, 3, 4, 100, 150, 178, 179, 180, 181, *range(182, 211)]
    captions = [[["<end>", "unknown"], []] for _ in range(N)]
    for word, count in zip(words, times, strict=True):
        for photo in rng.choice(N, count, replace=False):
            captions[photo][rng.integers(2)].append(word)
    vocabulary = Vocabulary((*SPECIAL, *words))
    present = np.zeros((N, len(vocabulary)), np.float32)
    for row, of_photo in zip(present, captions, strict=True):
        for word in set().union(*of_photo) & set(words):
            row[len(SPECIAL) + words.index(word)] = 1
    shares = present.mean(axis=0)
    expected = np.flatnonzero((shares >= 1 / 300) & (shares <= 0.3))
    found, of_found = _content_words(captions, vocabulary)
    np.testing.assert_array_equal(found, expected)
    assert 5 <= len(found) <= 9
    np.testing.assert_array_equal(of_found, present[:, expected].astype(float))
    assert of_found.dtype == float


def test_rare_words_take_no_memory_for_each_photo():
    vocabulary = Vocabulary((*SPECIAL, *(f"w{k}" for k in range(9000)), "dog"))
    captions = [[[f"w{k}"]] for k in range(1999)] + [[["w0", "dog"]]]
    captions[:10] = [[["dog"]]] * 10
    tracemalloc.start()
    words, _ = _content_words(captions, vocabulary)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert vocabulary.decode(words) == ["dog"]
    assert peak < 2000 * 9000  # bytes; a quarter of float32


def test_the_ridge_regression_of_words_equals_the_normal_equations():
    rng = np.random.default_rng(0)
    g = rng.normal(size=(60, 12)).astype(np.float32)
    captions = [[["a", "dog" if k % 4 == 0 else "cat"]] for k in range(60)]
    captions[0] = [["a", "dog", "tree"]]
    space = fit_photo_space(
        g, captions, Vocabulary((*SPECIAL, "a", "dog", "cat", "tree")), (5, 2)
    )
    assert space.words.tolist() == [5, 7]  # "a" and "cat" are in too many photos
    np.testing.assert_allclose(space.shares, [15 / 60, 1 / 60])
    z = (g - g.mean(0)) @ space.components / np.sqrt(space.variances)
    present = np.array([[k % 4 == 0, k == 0] for k in range(60)], float)
    normal = z.T @ z / 60 + 0.05 * np.eye(len(space.variances))
    expected = np.linalg.solve(normal, z.T @ (present - present.mean(0)) / 60)
    np.testing.assert_allclose(space.word_weights, expected, atol=1e-4)
    covariance = np.cov(g.T, bias=True)
    np.testing.assert_allclose(
        covariance @ space.components, space.components * space.variances, atol=1e-4
    )


@pytest.mark.parametrize("shift", [0, -4])
def test_only_sets_that_differ_are_measured_as_separable(shift):
    rng = np.random.default_rng(0)
    known = rng.normal(size=(600, 7))
    good = (shift * known[:, 6] + rng.normal(size=600) < 0).astype(float)
    ood_sets = {name: rng.normal(shift, 1, (300, 7)) for name in ("one", "two")}
    half = np.arange(600) % 2 == 0
    auc = measure_familiarity(None, known, good, ood_sets, {}, half)
    calibration = fit_calibration(None, known, good, list(ood_sets.values()))
    aucs = [*auc.values(), measure_quality(calibration, known, good, half)]
    if shift:
        assert min(aucs) > 0.8
    else:
        assert all(abs(auc - 0.5) < 0.08 for auc in aucs)


def test_captions_without_a_label_fit_the_familiarity_alone():
    rng = np.random.default_rng(0)
    known = rng.normal(size=(80, 7))
    good = (known[:, 6] > 0).astype(float)
    ood = rng.normal(-2, 1, (40, 7))
    unjudged = known.copy()
    unjudged[:, 6] = -known[:, 6]
    both = np.concatenate([known, unjudged])
    labels = np.concatenate([good, np.full(80, np.nan)])
    found = fit_calibration(None, both, labels, [ood])
    assert found.quality[1] > 1  # the others would cancel it
    assert np.isfinite(found.quality).all()
    everything = np.concatenate([good, good])
    other = fit_calibration(None, both, everything, [ood])
    np.testing.assert_array_equal(found.familiarity, other.familiarity)
    assert abs(other.quality[1]) < 0.1


def test_the_probability_of_tags_is_a_regression_that_ascends_with_the_score():
    rng = np.random.default_rng(0)
    x = rng.normal(0, 2, (4000, 4))
    truth = np.array([0.7, 0.5, -0.4, 0.0, -0.3])
    p = 1 / (1 + np.exp(-(x @ truth[:-1] + truth[-1])))
    found = fit_tag_calibration(x, rng.random(4000) < p)
    np.testing.assert_allclose(found.coefficients, truth, atol=0.1)
    np.testing.assert_allclose(found(x), p, atol=0.06)
    against = fit_tag_calibration(x, rng.random(4000) > p)
    assert against.coefficients[0] == 0
    assert found.coefficients[0] > 0


def test_statistics_that_do_not_vary_have_a_finite_regression():
    x = np.zeros((20, 4))
    x[:, 0] = np.arange(20)
    found = fit_tag_calibration(x, np.arange(20) > 9)
    assert np.isfinite(found.coefficients).all()
    assert (np.diff(found(x)) > 0).all()
