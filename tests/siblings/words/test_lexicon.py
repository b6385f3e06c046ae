"""The nearest words of a lexicon against a recursive oracle."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.runtime.errors import WordsError
from show_attend_tell.siblings.words.reading import Lexicon


@functools.cache
def recursive(a, b):
    """Return the Levenshtein distance by its definition."""
    if not a or not b:
        return len(a) + len(b)
    replaced = recursive(a[1:], b[1:]) + (a[0] != b[0])
    return min(replaced, 1 + recursive(a[1:], b), 1 + recursive(a, b[1:]))


WORD = st.text("ab1", min_size=1, max_size=8)


@given(st.text("ab1", max_size=8), st.lists(WORD, min_size=1, max_size=5, unique=True))
def test_the_nearest_words_have_the_least_distance(word, others):
    distances = [recursive(word, other) for other in others]
    pairs = zip(others, distances, strict=True)
    wanted = [other for other, distance in pairs if distance == min(distances)]
    assert Lexicon(others).nearest(word) == wanted


def test_a_word_of_the_lexicon_is_its_own_nearest():
    lexicon = Lexicon(["Hotel", "hostel", "HOTEL", "motel"])
    assert lexicon.words == ("hotel", "hostel", "motel")
    assert lexicon.nearest("hostel") == ["hostel"]


def test_a_lexicon_is_read_from_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("One\n\n two\n", encoding="utf-8-sig")
    assert Lexicon.load(path).words == ("one", "two")


@pytest.mark.parametrize("words", [[], ["new york"], ["a" * 24]])
def test_words_that_cannot_be_read_are_refused(words):
    with pytest.raises(WordsError):
        Lexicon(words)
