"""The confidence of captions, recomputed photo by photo."""

import math

import numpy as np
import pytest
from tiny_calibration import make_calibration, make_hypotheses, make_space

from show_attend_tell.inference.confidence import (
    FAMILIARITY,
    QUALITY,
    STATISTICS,
    describe_photos,
    statistics,
)

GRID, WIDTH = (5, 2), 4


def annotations(photos=5, seed=3):
    rng = np.random.default_rng(seed)
    shape = (photos, GRID[0] * GRID[1], WIDTH)
    return rng.exponential(size=shape).astype(np.float16)


def oracle_description(a):
    rows = a.astype(np.float64).reshape(*GRID, WIDTH)
    bands = [rows[0:2], rows[2:3], rows[3:5]]
    values = [math.sqrt(band[..., d].mean()) for band in bands for d in range(WIDTH)]
    length = math.sqrt(sum(v * v for v in values))
    return np.array([v / length for v in values])


def oracle_statistics(space, a, tokens, log_p, length):
    g = oracle_description(a)
    k = len(space.variances)
    y = [sum((g - space.mean) * space.components[:, j]) for j in range(k)]
    z = [y[j] / math.sqrt(space.variances[j]) for j in range(k)]
    rest = g - space.mean - sum(y[j] * space.components[:, j] for j in range(k))
    difference = g[:WIDTH] - g[-WIDTH:]
    cosine = (
        difference
        @ space.layout
        / math.sqrt((difference @ difference) * (space.layout @ space.layout))
    )
    ratios = []
    for token in tokens[:length]:
        for v, word in enumerate(space.words):
            if token == word:
                share = space.shares[v]
                p = share + sum(z[j] * space.word_weights[j, v] for j in range(k))
                ratios.append(math.log(min(max(p, 1e-3), 1) / share))
    return {
        "residual": -math.log(sum(rest**2)),
        "distance": -math.log(sum(x * x for x in z) / k),
        "layout": cosine,
        "grounding": sum(ratios) / len(ratios) if ratios else 0.0,
        "log_prob": sum(log_p[:length]) / length,
        "weakest": np.mean(sorted(log_p[:length])[:3]),
        "expected": 0.0,
    }


def test_photos_are_described_by_the_roots_of_the_means_of_three_bands():
    a = annotations()
    g = describe_photos(a, GRID)
    expected = [oracle_description(one) for one in a]
    np.testing.assert_allclose(g, expected, rtol=1e-5)


@pytest.mark.parametrize("grid", [(1, 10), (2, 5), (10, 1)])
def test_grids_of_few_rows_have_three_bands_too(grid):
    g = describe_photos(annotations(), grid)
    assert g.shape == (5, 3 * WIDTH)
    assert np.isfinite(g).all()


def test_statistics_equal_their_equations():
    space, a, found = make_space(), annotations(), make_hypotheses()
    values = statistics(space, a, found)
    for n in range(len(a)):
        best = (x[n, 0] for x in (found.tokens, found.word_log_probs, found.lengths))
        expected = oracle_statistics(space, a[n], *best)
        row = [expected[name] for name in STATISTICS]
        np.testing.assert_allclose(values[n], row, rtol=1e-4, atol=1e-5)


def test_a_caption_without_content_words_has_no_grounding():
    space = make_space(words=(50, 60, 70))
    values = statistics(space, annotations(), make_hypotheses())
    assert (values[:, STATISTICS.index("grounding")] == 0).all()


def test_the_confidence_is_the_product_of_two_logistic_regressions():
    calibration, a, found = make_calibration(make_space()), annotations(), None
    found = make_hypotheses()
    values = statistics(calibration.space, a, found)
    for n, confidence in enumerate(calibration.confidence(a, found)):
        x = (values[n] - calibration.centre) / calibration.scale
        x = dict(zip(STATISTICS, np.clip(x, -4, 4), strict=True))
        product = 1.0
        for names, w in (
            (FAMILIARITY, calibration.familiarity),
            (QUALITY, calibration.quality),
        ):
            z = sum(x[name] * w[j] for j, name in enumerate(names)) + w[-1]
            product /= 1 + math.exp(-z)
        assert confidence == pytest.approx(product, abs=1e-5)


def test_a_photo_alone_has_the_confidence_that_it_has_in_a_batch():
    calibration, a = make_calibration(make_space()), annotations()
    found = make_hypotheses()
    together = calibration.confidence(a, found)
    for n in range(len(a)):
        one = type(found)(*(field[n : n + 1] for field in found))
        alone = calibration.confidence(a[n : n + 1], one)
        np.testing.assert_allclose(alone, together[n : n + 1], atol=2e-6)


def test_photos_without_any_activation_have_a_finite_confidence():
    calibration = make_calibration(make_space())
    zeros = np.zeros((5, GRID[0] * GRID[1], WIDTH), np.float16)
    assert np.isfinite(calibration.confidence(zeros, make_hypotheses())).all()


def test_the_layout_of_a_photo_upside_down_is_the_negative():
    space, a = make_space(), annotations()
    turned = a.reshape(5, *GRID, WIDTH)[:, ::-1, ::-1].reshape(a.shape)
    column = STATISTICS.index("layout")
    upright, down = (
        statistics(space, one, make_hypotheses())[:, column] for one in (a, turned)
    )
    np.testing.assert_allclose(upright, -down, rtol=1e-4)
