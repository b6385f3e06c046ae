"""BLEU, CIDEr and ROUGE-L against NLTK and a NumPy recomputation."""

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.translate.bleu_score import corpus_bleu
from random_captions import draw_corpus, joined

from show_attend_tell.evaluation.metrics.ngrams import (
    FILE_TOKEN_BLEU,
    bleu,
    cider,
    file_token_bleu,
    rouge_l,
)
from show_attend_tell.evaluation.metrics.scoring import validation_scores


def numpy_cider_d(captions, references, sigma=6.0):
    """Compute CIDEr-D, 0 to 10, from its definition (arXiv:1411.5726, Sec. 5, 7)."""

    def grams(words, n):
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    scores = np.zeros((len(captions), 4))
    for n in range(1, 5):
        names = sorted({g for refs in references for r in refs for g in grams(r, n)})
        names = sorted({*names, *(g for c in captions for g in grams(c, n))})
        index = {name: i for i, name in enumerate(names)}
        found = [{g for r in refs for g in grams(r, n)} for refs in references]
        frequency = np.array([max(1, sum(g in f for f in found)) for g in names])
        idf = np.log(len(captions)) - np.log(frequency)

        def vector(words, n=n, index=index, idf=idf):
            counts = np.zeros(len(index))
            for name, count in Counter(grams(words, n)).items():
                counts[index[name]] = count
            return counts * idf

        for row, (caption, refs) in enumerate(zip(captions, references, strict=True)):
            c = vector(caption)
            for words in refs:
                r = vector(words)
                norm = np.linalg.norm(c) * np.linalg.norm(r)
                cosine = np.minimum(c, r) @ r / norm if norm > 0 else 0.0
                # The library measures length in bigrams: at least 0, words - 1.
                gap = max(len(caption) - 1, 0) - max(len(words) - 1, 0)
                scores[row, n - 1] += cosine * math.exp(-(gap**2) / (2 * sigma**2))
            scores[row, n - 1] /= len(refs)
    return 10 * scores.mean()


def slow_rouge_l(caption, references, beta=1.2):
    """Compute ROUGE-L with a recursive longest common subsequence."""

    @cache
    def lcs(a, b):
        if not a or not b:
            return 0
        if a[-1] == b[-1]:
            return lcs(a[:-1], b[:-1]) + 1
        return max(lcs(a[:-1], b), lcs(a, b[:-1]))

    lengths = [lcs(tuple(caption), tuple(words)) for words in references]
    precision = max(length / len(caption) for length in lengths)
    recall = max(
        length / len(words) for length, words in zip(lengths, references, strict=True)
    )
    if not precision or not recall:
        return 0.0
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision)


def values(results, ending=""):
    """Return BLEU-1 to 4 in percent."""
    return [results[f"BLEU-{n}{ending}"].value for n in range(1, 5)]


def test_bleu_equals_nltk_for_every_order(rng):
    captions, references = draw_corpus(rng)
    expected = [
        100 * corpus_bleu(references, captions, weights=(1 / n,) * n)
        for n in range(1, 5)
    ]
    found = values(bleu(*joined(captions, references)))
    assert found == pytest.approx(expected, abs=1e-4)


def test_bleu_without_penalty_times_the_penalty_is_bleu(rng):
    captions, references = draw_corpus(rng)
    captions = [words[:4] for words in captions]
    results = bleu(*joined(captions, references))
    length = sum(map(len, captions))
    closest = sum(
        min((abs(len(r) - len(c)), len(r)) for r in refs)[1]
        for c, refs in zip(captions, references, strict=True)
    )
    penalty = math.exp(1 - closest / length)
    assert penalty < 1
    plain = np.array(values(results, "-no-bp"))
    np.testing.assert_allclose(values(results), plain * penalty, rtol=1e-6)
    long = bleu(*joined([words * 3 for words in captions], references))
    assert values(long) == values(long, "-no-bp")


def test_rouge_l_equals_a_recursive_recomputation(rng):
    captions, references = draw_corpus(rng, photos=8)
    value, statistic = rouge_l(*joined(captions, references))
    expected = [slow_rouge_l(c, r) for c, r in zip(captions, references, strict=True)]
    assert statistic.values[:, 0] == pytest.approx(100 * np.array(expected), abs=1e-9)
    assert value == pytest.approx(100 * np.mean(expected), abs=1e-9)


def test_cider_and_validation_scores_equal_independent_recomputations(rng):
    captions, references = draw_corpus(rng)
    ids = [f"{index}.jpg" for index in range(len(captions))]
    scores = validation_scores(
        dict(zip(ids, captions, strict=True)), dict(zip(ids, references, strict=True))
    )
    bleu_4 = 100 * corpus_bleu(references, captions)
    assert scores["BLEU-4"] == pytest.approx(bleu_4, abs=1e-6)
    cider_d = 100 * numpy_cider_d(captions, references)
    assert scores["CIDEr"] == pytest.approx(cider_d, abs=1e-6)
    value = cider(*joined(captions, references)).value
    assert value == pytest.approx(cider_d, abs=1e-4)


def test_validation_scores_of_empty_captions_are_zero():
    references = {"a": [["a", "dog"]], "b": [["a", "cat"]]}
    scores = validation_scores({"a": [], "b": []}, references)
    assert scores == pytest.approx({"BLEU-4": 0.0, "CIDEr": 0.0}, abs=1e-6)


@given(st.permutations(range(6)))
def test_the_order_of_photos_changes_no_score(order):
    captions, references = draw_corpus(np.random.default_rng(1), photos=6)
    expected = validation_scores(dict(enumerate(captions)), dict(enumerate(references)))
    shuffled = validation_scores(
        {i: captions[i] for i in order}, {i: references[i] for i in reversed(order)}
    )
    assert shuffled == pytest.approx(expected, abs=1e-9)


def test_scorers_print_nothing(rng, capfd):
    captions, references = joined(*draw_corpus(rng, photos=5))
    bleu(captions, references)
    cider(captions, references)
    rouge_l(captions, references)
    assert capfd.readouterr() == ("", "")


REFERENCES = {
    "1.jpg": ["A man is riding a horse .", "The man rides a brown horse on grass ."],
    "2.jpg": ["Two dogs , both wet , play with a red ball .", "Dogs play outside"],
}
TOKENS = [[text.lower().split() for text in texts] for texts in REFERENCES.values()]
CAPTIONS = {
    "1.jpg": "a man rides a brown horse on the grass",
    "2.jpg": "two dogs , both brown , play with a ball",
}


@pytest.mark.parametrize("end", ["", " .", "."])
def test_a_period_is_appended_where_the_captioner_writes_none(end):
    written = {"1.jpg": CAPTIONS["1.jpg"] + end, "2.jpg": CAPTIONS["2.jpg"]}
    scores, appended = file_token_bleu(written, REFERENCES)
    assert appended == (not end)
    words = [CAPTIONS["1.jpg"].split() + ["."], CAPTIONS["2.jpg"].split()]
    words[1] += ["."] * appended
    assert tuple(scores) == FILE_TOKEN_BLEU
    for n in range(1, 5):
        expected = 100 * corpus_bleu(TOKENS, words, weights=(1 / n,) * n)
        assert scores[f"BLEU-{n}-files"].value == pytest.approx(expected, abs=1e-5)
    for value, statistic in scores.values():
        assert statistic.score() == pytest.approx(value, rel=1e-12)


def test_short_captions_are_penalised_and_references_need_periods():
    short = {photo: " ".join(text.split()[:4]) for photo, text in CAPTIONS.items()}
    scores, _ = file_token_bleu(short, REFERENCES)
    words = [[*text.split(), "."] for text in short.values()]
    expected = 100 * corpus_bleu(TOKENS, words, weights=(1,))
    assert scores["BLEU-1-files"].value == pytest.approx(expected, abs=1e-5)
    assert scores["BLEU-1-files"].value < scores["BLEU-1-no-bp-files"].value
    scores, _ = file_token_bleu({**CAPTIONS, "2.jpg": ""}, REFERENCES)
    assert 0 < scores["BLEU-1-files"].value < 100
    references = {photo: [texts[0][:-2]] for photo, texts in REFERENCES.items()}
    assert file_token_bleu(CAPTIONS, references)[0] == {}
