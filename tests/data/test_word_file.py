"""Files of words, one a line: what is read, skipped and refused."""

import pytest

from show_attend_tell.data.word_file import read_word_file
from show_attend_tell.runtime.errors import WordsError


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
