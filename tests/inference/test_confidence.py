"""The confidence of captions, recomputed photo by photo."""

import math

import numpy as np
import pytest
from tiny_calibration import (
    VOCABULARY,
    make_calibration,
    make_hypotheses,
    make_space,
)

from show_attend_tell.inference.confidence import (
    FAMILIARITY,
    QUALITY,
    STATISTICS,
    describe_photos,
    gather_evidence,
    statistics,
)
from show_attend_tell.inference.tags import TagCalibration

GRID, WIDTH = (5, 2), 4
TAGS = TagCalibration(np.array([0.6, 0.9, -0.5, 0.2, -0.1]))
NOUNS = {4: "dog", 6: "dog", 7: "cat", 8: "ball"}  # by the ids of VOCABULARY
HOT, END = 5, 2


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


def statistics_of(space, a, found, tags=TAGS):
    return statistics(gather_evidence(space, a, found, VOCABULARY), tags)


def oracle_names(tokens):
    """Return the nouns of a caption; "hot dogs" is one."""
    names = set()
    previous = None
    for token in tokens:
        if token == END:
            break
        if token in NOUNS:
            is_food = previous == HOT and NOUNS[token] == "dog"
            names.add("hot dog" if is_food else NOUNS[token])
        previous = token
    return names


def oracle_nouns(space, z, tokens, log_probs, lengths):
    """Return the mean log odds of the nouns of the first of the candidates."""
    p = np.exp(log_probs - max(log_probs)) / np.exp(log_probs - max(log_probs)).sum()
    nouns = [
        oracle_names(row[:n].tolist()) for row, n in zip(tokens, lengths, strict=True)
    ]
    odds = []
    for noun in nouns[0]:
        s = sum(p[w] for w in range(len(p)) if noun in nouns[w])
        x = [math.log((s + 1e-3) / (1 - s + 1e-3)), 0.0, 0.0, 1.0]
        places = [v for v, word in enumerate(space.words) if NOUNS[word] == noun]
        if places:
            own = [space.shares[v] + z @ space.word_weights[:, v] for v in places]
            total = sum(min(max(q, 1e-3), 1) for q in own)
            share = sum(space.shares[v] for v in places)
            x[1:] = [math.log(min(total, 1)), math.log(min(share, 1)), 0.0]
        odds.append(x @ TAGS.coefficients[:4] + TAGS.coefficients[4])
    return np.mean(odds) if odds else 0.0


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
    }, np.array(z)


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
    space, a, found = make_space(words=(4, 6, 7)), annotations(), make_hypotheses()
    values = statistics_of(space, a, found)
    for n in range(len(a)):
        best = (x[n, 0] for x in (found.tokens, found.word_log_probs, found.lengths))
        expected, z = oracle_statistics(space, a[n], *best)
        expected["certainty"] = max(found.log_probs[n])
        expected["nouns"] = oracle_nouns(
            space, z, found.tokens[n], found.log_probs[n], found.lengths[n]
        )
        row = [expected[name] for name in STATISTICS]
        np.testing.assert_allclose(values[n], row, rtol=1e-4, atol=1e-5)


def test_a_caption_without_content_words_has_no_grounding():
    space = make_space(words=(1,))
    values = statistics_of(space, annotations(), make_hypotheses())
    assert (values[:, STATISTICS.index("grounding")] == 0).all()


def test_without_a_calibration_of_tags_or_nouns_their_odds_are_0():
    space = make_space()
    found = make_hypotheses()
    column = STATISTICS.index("nouns")
    assert statistics_of(space, annotations(), found)[:, column].any()
    assert not statistics_of(space, annotations(), found, None)[:, column].any()
    hot = found._replace(tokens=np.full_like(found.tokens, HOT))
    assert not statistics_of(space, annotations(), hot)[:, column].any()


def test_the_confidence_is_the_product_of_two_logistic_regressions():
    calibration, a = make_calibration(make_space()), annotations()
    found = make_hypotheses()
    values = statistics_of(calibration.space, a, found, calibration.tags)
    for n, judged in enumerate(calibration.judge(a, found, VOCABULARY)):
        x = (values[n] - calibration.centre) / calibration.scale
        x = dict(zip(STATISTICS, np.clip(x, -4, 4), strict=True))
        product = 1.0
        for names, w in (
            (FAMILIARITY, calibration.familiarity),
            (QUALITY, calibration.quality),
        ):
            z = sum(x[name] * w[j] for j, name in enumerate(names)) + w[-1]
            product /= 1 + math.exp(-z)
        assert judged.confidence == pytest.approx(product, abs=1e-5)


def test_a_photo_alone_has_the_confidence_that_it_has_in_a_batch():
    calibration, a = make_calibration(make_space()), annotations()
    found = make_hypotheses()
    together = calibration.judge(a, found, VOCABULARY)
    for n in range(len(a)):
        one = type(found)(*(field[n : n + 1] for field in found))
        (alone,) = calibration.judge(a[n : n + 1], one, VOCABULARY)
        assert alone.confidence == pytest.approx(together[n].confidence, abs=2e-6)
        assert [tag.name for tag in alone.tags] == [t.name for t in together[n].tags]


def test_photos_without_any_activation_have_a_finite_confidence():
    calibration = make_calibration(make_space())
    zeros = np.zeros((5, GRID[0] * GRID[1], WIDTH), np.float16)
    judged = calibration.judge(zeros, make_hypotheses(), VOCABULARY)
    assert np.isfinite([one.confidence for one in judged]).all()


def test_the_layout_of_a_photo_upside_down_is_the_negative():
    space, a = make_space(), annotations()
    turned = a.reshape(5, *GRID, WIDTH)[:, ::-1, ::-1].reshape(a.shape)
    column = STATISTICS.index("layout")
    upright, down = (
        statistics_of(space, one, make_hypotheses())[:, column] for one in (a, turned)
    )
    np.testing.assert_allclose(upright, -down, rtol=1e-4)
