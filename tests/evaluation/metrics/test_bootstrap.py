"""Bootstrap intervals and p-values against scores of resampled captions."""

import numpy as np
import pytest
from random_captions import draw_corpus, joined

from show_attend_tell.evaluation.metrics.bootstrap import (
    RESAMPLES,
    Statistic,
    draw_counts,
    intervals,
    paired_p,
    ratio_statistic,
    resample,
)
from show_attend_tell.evaluation.metrics.java import meteor, meteor_statistic
from show_attend_tell.evaluation.metrics.ngrams import bleu, rouge_l
from show_attend_tell.evaluation.metrics.scoring import score


def test_every_resample_draws_as_many_photos_as_there_are():
    counts = np.concatenate(list(draw_counts(7)))
    assert counts.shape == (RESAMPLES, 7)
    np.testing.assert_array_equal(counts.sum(axis=1), 7)
    np.testing.assert_allclose(counts.mean(axis=0), 1, atol=0.3)
    np.testing.assert_array_equal(counts, np.concatenate(list(draw_counts(7))))


def test_scores_of_resamples_equal_those_of_the_drawn_captions(rng):
    hypotheses, references = joined(*draw_corpus(rng, photos=12))

    def scores(rows):
        words = [hypotheses[k] for k in rows], [references[k] for k in rows]
        return {**bleu(*words), "ROUGE-L": rouge_l(*words)}

    whole = {name: statistic for name, (_, statistic) in scores(range(12)).items()}
    resampled = resample(whole)
    for r, drawn in enumerate(next(draw_counts(12))[:9].astype(int)):
        for name, (value, _) in scores(np.repeat(np.arange(12), drawn)).items():
            assert resampled[name][r] == pytest.approx(value, rel=1e-12)


@pytest.mark.usefixtures("no_java")
def test_the_statistic_of_every_score_gives_the_score_itself(rng):
    captions, references = draw_corpus(rng)
    short = bleu(*joined([words[:3] for words in captions], references))
    for value, statistic in short.values():
        assert statistic.score() == pytest.approx(value, rel=1e-12)
    assert short["BLEU-2"].value < 0.9 * short["BLEU-2-no-bp"].value
    hypotheses, references = joined(captions, references)
    captions = {str(k): text for k, text in enumerate(hypotheses)}
    result = score(captions, {str(k): texts for k, texts in enumerate(references)})
    assert result.statistics.keys() == result.scores.keys()
    for name, statistic in result.statistics.items():
        assert statistic.score() == pytest.approx(result.scores[name], rel=1e-12)


def test_intervals_are_percentiles_of_the_resamples(rng):
    statistic = ratio_statistic(rng.normal(50, 10, 400), np.ones(400))
    (low, high) = intervals({"x": statistic})["x"]
    scores = np.sort(resample({"x": statistic})["x"])
    assert len(scores) == RESAMPLES
    assert np.mean(scores < low) == pytest.approx(0.025, abs=0.001)
    assert np.mean(scores > high) == pytest.approx(0.025, abs=0.001)
    # The mean's standard error is 0.5, so the interval is close to +- 0.98.
    assert high - low == pytest.approx(4 * 0.49, rel=0.1)
    assert low < statistic.score() < high


def test_a_share_is_resampled_by_its_numerator_and_denominator():
    statistic = ratio_statistic([3, 0, 1], [4, 0, 1])
    assert statistic.score() == pytest.approx(4 / 5)
    scores = resample({"x": statistic})["x"]
    assert np.isnan(scores).any()  # resamples of the photo without a denominator
    low, high = intervals({"x": statistic})["x"]
    assert 0.75 <= low < high <= 1


def test_the_p_value_counts_resamples_on_the_other_side():
    differences = np.array([1.0] * 97 + [-1.0] * 2)
    assert paired_p(differences) == pytest.approx(2 * 3 / 100)
    assert paired_p(-differences) == pytest.approx(2 * 3 / 100)
    assert paired_p(np.ones(999)) == pytest.approx(2 / 1000)
    assert paired_p(np.zeros(999)) == 1


def test_equal_seeds_pair_the_resamples_of_two_models(rng):
    values = rng.normal(20, 10, 300)
    noise = rng.normal(0, 0.1, 300)
    first, second = (
        resample({"x": ratio_statistic(scores, np.ones(300))})["x"]
        for scores in (values, values + 0.2 + noise)
    )
    assert paired_p(second - first) <= 0.002  # although both scores vary by 0.6
    assert np.std(first) > 10 * np.std(second - first)


def numpy_meteor(line):
    """Compute METEOR 1.5, 0 to 1, of one caption's 23 statistics."""
    length, reference, function, reference_function = line[:4]
    matched, recalled = 0.0, 0.0
    for module, weight in enumerate((1.0, 0.6, 0.8, 0.6)):
        content, reference_content, own, theirs = line[4 + 4 * module : 8 + 4 * module]
        matched += weight * (0.75 * content + 0.25 * own)
        recalled += weight * (0.75 * reference_content + 0.25 * theirs)
    chunks, words, reference_words = line[20:]
    precision = matched / (0.75 * (length - function) + 0.25 * function)
    recall = recalled / (
        0.75 * (reference - reference_function) + 0.25 * reference_function
    )
    if not precision or not recall:
        return 0.0
    f_mean = 1 / (0.15 / precision + 0.85 / recall)
    return f_mean * (1 - 0.6 * (2 * chunks / (words + reference_words)) ** 0.2)


PARTIAL = [9, 8, 3, 2, 4, 4, 2, 2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 3, 8, 8]
WHOLE = [4, 4, 1, 1, 3, 3, 1, 1, *[0] * 12, 1, 4, 4]  # equal to its reference
NOTHING = [5, 6, 2, 2, *[0] * 19]
EMPTY = [0, 6, 0, 2, *[0] * 19]


@pytest.mark.parametrize(
    ("lines", "chunks", "expected"),
    [
        ([PARTIAL], 0, None),
        ([PARTIAL, NOTHING, PARTIAL], 0, None),
        ([PARTIAL, WHOLE], 1, None),  # a caption equal to its reference has no fragment
        ([WHOLE], 1, 100),
        ([NOTHING], 0, 0),
        ([EMPTY], 0, 0),
    ],
)
def test_meteor_of_summed_statistics_is_recomputed(lines, chunks, expected):
    found = meteor_statistic(np.array(lines, float)).score()
    if expected is None:
        sums = np.sum(lines, axis=0)
        sums[20] -= chunks
        expected = 100 * numpy_meteor(sums)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_meteor_of_statistics_equals_the_jars(rng):
    hypotheses, references = joined(*draw_corpus(rng))
    hypotheses[0], hypotheses[1] = references[0][0], "naïve"
    result = meteor(hypotheses, references, 120)
    assert result.statistic.score() == pytest.approx(result.value, rel=1e-12)
    for row, caption, texts in zip(
        result.statistic.values[:3], hypotheses, references, strict=False
    ):
        one = Statistic(row[None], result.statistic.compute)
        value = meteor([caption], [texts], 120).value
        assert one.score() == pytest.approx(value, rel=1e-12)
