"""Edit distances against a table and a recursive oracle; lexicons."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.data.characters import encode_words
from show_attend_tell.runtime.errors import WordsError
from show_attend_tell.siblings.words.edit_distance import (
    Lexicon,
    edit_distance,
    edit_distances,
)

TABLE = [
    ("kitten", "sitting", 3),
    ("saturday", "sunday", 3),
    ("flaw", "lawn", 2),
    ("abc", "abc", 0),
    ("", "abc", 3),
    ("abc", "", 3),
    ("", "", 0),
    ("a", "b", 1),
    ("ab", "ba", 2),
    ("intention", "execution", 5),
]


@pytest.mark.parametrize(("one", "other", "distance"), TABLE)
def test_distances_of_the_table(one, other, distance):
    assert edit_distance(one, other) == edit_distance(other, one) == distance


@functools.cache
def recursive(a, b):
    if not a or not b:
        return len(a) + len(b)
    replaced = recursive(a[1:], b[1:]) + (a[0] != b[0])
    return min(replaced, 1 + recursive(a[1:], b), 1 + recursive(a, b[1:]))


WORD = st.text("ab1", min_size=1, max_size=8)


@given(st.text("ab1", max_size=8), st.lists(WORD, min_size=1, max_size=5))
def test_distances_to_many_words_equal_the_recursion(word, others):
    found = edit_distances(word, encode_words(others))
    assert found.tolist() == [recursive(word, other) for other in others]


def test_a_word_of_the_lexicon_is_its_own_nearest():
    lexicon = Lexicon(["Hotel", "hostel", "HOTEL", "motel"])
    assert lexicon.words == ("hotel", "hostel", "motel")
    assert lexicon.nearest("hostel")[0] == ["hostel"]


def test_all_words_of_the_least_distance_are_found():
    words, tokens = Lexicon(["cat", "bat", "dog"]).nearest("rat")
    assert words == ["cat", "bat"]
    assert tokens.tolist() == encode_words(words).tolist()


def test_a_lexicon_is_read_from_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("One\n\n two\n")
    assert Lexicon.load(path).words == ("one", "two")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "a word or more"), (b"caf\xc3\xa9", "characters"), (b"\xff", "lexicon")],
)
def test_a_lexicon_that_cannot_be_used_is_an_error_of_one_line(
    tmp_path, content, reason
):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(WordsError, match=reason) as caught:
        Lexicon.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_absent_lexicon_is_an_error(tmp_path):
    with pytest.raises(WordsError, match="no such lexicon"):
        Lexicon.load(tmp_path / "absent.txt")
