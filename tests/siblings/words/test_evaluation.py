"""Scores of words by hand."""

import pytest

from show_attend_tell.siblings.words.evaluation import file_suffix, score_words


def test_scores_of_three_words_by_hand():
    scores = score_words(["hotel", "bed", ""], ["hotel", "bad", "a1"])
    assert scores["word_accuracy"] == pytest.approx(100 / 3)
    assert scores["similarity"] == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    assert scores["character_accuracy"] == pytest.approx(100 * (1 - 3 / 10))
    assert score_words(["abcdef"], ["z"])["character_accuracy"] == 0
    assert scores["by_length"] == {2: (0.0, 1), 3: (0.0, 1), 5: (100.0, 1)}


# Newcombe, Statistics in Medicine 17 (1998), Table I, method 3.
@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [(81, 263, 25.53, 36.62), (15, 148, 6.24, 16.05), (0, 20, 0, 16.11),
     (1, 29, 0.61, 17.18)],
)  # fmt: skip
def test_the_interval_is_wilsons(right, count, low, high):
    scores = score_words(["a"] * right + ["b"] * (count - right), ["a"] * count)
    assert scores["interval"] == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize(
    ("data", "split", "search", "suffix"),
    [
        ("words", "val", (1, False), ""),
        ("words", "test", (1, False), ""),
        ("words", "train", (1, False), "-words-train"),
        ("iiit5k", "val", (1, False), "-iiit5k-val"),
        ("iiit5k", "all", (1, False), "-iiit5k-all"),
        ("words", "val", (5, False), "-words-val-beam-5"),
        ("iiit5k", "all", (1, True), "-iiit5k-all-beam-1-lexicon"),
    ],
)
def test_files_name_other_data_splits_and_searches(data, split, search, suffix):
    assert file_suffix(data, split, "words", *search) == suffix
