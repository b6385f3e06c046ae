"""The alphabet of a word reader: words become tokens, and tokens words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from show_attend_tell.runtime.errors import DataError
from show_attend_tell.siblings.words.data import (
    CHARACTERS,
    END,
    MAX_LENGTH,
    PAD,
    START,
    STEPS,
    TOKENS,
    decode,
    encode_words,
    fold,
    read_word_file,
)

WORDS = st.text(CHARACTERS + "ABCXYZ", min_size=1, max_size=MAX_LENGTH)


def test_the_tokens_are_three_special_ones_and_36_characters():
    assert len(TOKENS) == len(set(TOKENS)) == 39
    assert [TOKENS[k] for k in (PAD, START, END)] == ["<pad>", "<start>", "<end>"]
    assert encode_words(["0aZ9"])[0, :5].tolist() == [3, 13, 38, 12, END]


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_words_are_decoded_as_they_were_encoded_but_for_capitals(words):
    tokens = encode_words(words)
    assert (tokens.shape, tokens.dtype) == ((len(words), STEPS), np.int32)
    for row, word in zip(tokens, words, strict=True):
        n = len(word)
        assert row[n] == END
        assert START not in row
        assert row[n + 1 :].tolist() == [PAD] * (STEPS - n - 1)
        assert decode(row) == fold(word) == word.lower()
        assert decode([START, *row[: n + 1], PAD, 5]) == word.lower()


@pytest.mark.parametrize(
    "word", ["", "a" * 24, "don't", "na\u00efve", "\u017f", "\u212a", "a b", "\u00b2"]
)
def test_other_words_are_refused_in_one_line(word):
    with refused(DataError, "`word` must have .*remove the word"):
        fold(word)


def test_words_are_read_once_in_their_order_and_other_lines_skipped(tmp_path, caplog):
    path = tmp_path / "words.txt"
    lines = ["Stop", " b12 ", "don't", "", "stop", "a" * 24, "caf\u00e9", "New York"]
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    assert read_word_file(path) == ["stop", "b12"]
    assert "4 lines skipped, words are 1 to 23 of 0-9, a-z and A-Z" in caplog.text
    assert 'line 3, "don\'t"' in caplog.text


def test_an_accent_of_its_own_is_part_of_its_letter(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("e\u0301te\u0301\nth\u00e9\u200b\n", encoding="utf-8")
    assert read_word_file(path, "eht\u00e9") == ["\u00e9t\u00e9", "th\u00e9"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"don't\n", b"\xff\xfe\xff"])
def test_a_file_without_words_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with refused(DataError, r"words\.txt"):
        read_word_file(path)
    with pytest.raises(DataError, match="no such file of words"):
        read_word_file(tmp_path / "absent.txt")
