"""The alphabet of a word reader: words become tokens, and tokens words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.data.characters import (
    CHARACTERS,
    END,
    MAX_LENGTH,
    PAD,
    START,
    STEPS,
    TOKENS,
    decode,
    encode,
    encode_words,
    fold,
    read_word_file,
)
from show_attend_tell.runtime.errors import WordsError

WORDS = st.text(CHARACTERS + "ABCXYZ", min_size=1, max_size=MAX_LENGTH)


def test_the_tokens_are_three_special_ones_and_36_characters():
    assert len(TOKENS) == len(set(TOKENS)) == 39
    assert [TOKENS[k] for k in (PAD, START, END)] == ["<pad>", "<start>", "<end>"]
    assert encode("0aZ9") == [3, 13, 38, 12, END]


@given(WORDS)
def test_a_word_is_decoded_as_it_was_encoded_but_for_capitals(word):
    tokens = encode(word)
    assert tokens[-1] == END
    assert START not in tokens
    assert decode(tokens) == fold(word) == word.lower()
    assert decode([START, *tokens, PAD, 5]) == word.lower()


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_words_are_rows_that_end_in_padding(words):
    tokens = encode_words(words)
    assert tokens.shape == (len(words), STEPS)
    assert tokens.dtype == np.int32
    for row, word in zip(tokens, words, strict=True):
        assert row.tolist() == encode(word) + [PAD] * (STEPS - len(word) - 1)


@pytest.mark.parametrize(
    "word", ["", "a" * 24, "don't", "na\u00efve", "\u017f", "\u212a", "a b", "\u00b2"]
)
def test_other_words_are_refused_in_one_line(word):
    with pytest.raises(WordsError, match="`word` must have .*remove the word") as error:
        encode(word)
    assert "\n" not in str(error.value)


def test_the_longest_word_fits():
    assert len(encode("w" * MAX_LENGTH)) == STEPS


@pytest.mark.parametrize("token", [-1, 39])
def test_other_tokens_are_refused(token):
    with pytest.raises(WordsError, match="`tokens` must be 0 to 38"):
        decode([token])


def test_words_are_read_once_in_their_order(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("Stop\n b12 \n\nstop\nABC\n", encoding="utf-8-sig")
    assert read_word_file(path) == ["stop", "b12", "abc"]


def test_lines_that_are_no_words_are_skipped_with_a_warning(tmp_path, caplog):
    path = tmp_path / "words.txt"
    lines = ["Stop", "don't", "", "a" * 24, "caf\u00e9", "New York", "B12"]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert read_word_file(path) == ["stop", "b12"]
    assert "4 lines skipped" in caplog.text
    assert 'line 2, "don\'t"' in caplog.text


@pytest.mark.parametrize("content", [b"", b"\n\n", b"don't\n", b"\xff\xfe\xff"])
def test_a_file_without_words_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(WordsError, match=r"words\.txt") as error:
        read_word_file(path)
    assert "\n" not in str(error.value)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(WordsError, match="no such file of words"):
        read_word_file(tmp_path / "absent.txt")
