"""The words to render: their alphabet, lengths, kinds and files."""

import sys
from collections import Counter

import numpy as np
import pytest
from made_up_words import LISTED

from show_attend_tell.runtime.errors import DataError
from show_attend_tell.siblings.words.data import MAX_LENGTH, fold
from show_attend_tell.siblings.words.rendering import word_list
from show_attend_tell.siblings.words.rendering.word_list import WordList, load_words


def samples(count=4000, listed=LISTED):
    rng, words = np.random.default_rng(1), WordList(listed)
    return [words.sample(rng) for _ in range(count)]


def test_words_have_characters_of_the_alphabet_and_at_most_23():
    for word, text in samples():
        assert fold(word) == word
        assert len(word) <= MAX_LENGTH
        assert plain(text).lower() == word


def plain(text):
    return "".join(filter(str.isalnum, text))


def test_all_kinds_and_cases_of_words_occur():
    pairs = samples()
    listed = np.mean([word in LISTED for word, _ in pairs])
    digits = np.mean([word.isdigit() for word, _ in pairs])
    upper = np.mean([plain(text).isupper() for _, text in pairs])
    punctuated = np.mean([text != plain(text) for _, text in pairs])
    assert 0.71 < listed < 0.79
    assert 0.07 < digits < 0.13
    assert 0.38 < upper < 0.58
    assert 0.12 < punctuated < 0.18


def test_lengths_are_those_of_words_in_photos():
    listed = {length * "x": 1.0 for length in range(1, MAX_LENGTH + 1)}
    lengths = np.array([len(word) for word, _ in samples(6000, listed)])
    assert 4.5 < lengths.mean() < 5.5
    assert 10 < lengths.max()


def test_frequent_words_occur_more_often_and_rare_ones_too():
    listed = {"rare": 1e-8, "seal": 1e-8, "with": 1e-2}
    rng, words = np.random.default_rng(2), WordList(listed)
    counts = Counter(words.neighbour(rng).lower() for _ in range(3000))
    assert counts["with"] > 1.5 * counts["rare"]
    assert counts["rare"] > 300


def test_the_digest_depends_on_words_and_frequencies():
    others = (LISTED, {**LISTED, "stop": 5.0}, {**LISTED, "more": 1.0})
    assert len({WordList(one).digest for one in others}) == 3
    assert WordList(LISTED).digest == WordList(dict(reversed(LISTED.items()))).digest


def test_an_absent_list_is_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no such file of words"):
        load_words(tmp_path / "absent.txt")
    monkeypatch.setitem(sys.modules, "wordfreq", None)  # not installed
    monkeypatch.setattr(word_list, "_SYSTEM_LISTS", (str(tmp_path / "absent"),))
    with pytest.raises(DataError, match="name a file with --set data.words"):
        load_words()
    system = tmp_path / "system"
    system.write_text("hotel\nopen\n")
    monkeypatch.setattr(word_list, "_SYSTEM_LISTS", (str(system),))
    assert len(load_words()) == 2
