"""Captions of text files: what is read, and one line for what is refused."""

import gzip

import pytest

from show_attend_tell.data import text_files
from show_attend_tell.data.text_files import MAX_LINE_BYTES, read_text_captions
from show_attend_tell.runtime.errors import DataError

TEXT = "\ufeffA dog runs .\r\n\n  \nTwo cats' toys, on a mat.\nNo line break"
WORDS = [["a", "dog", "runs"], ["two", "cats", "toys", "on", "a", "mat"]]
WORDS += [["no", "line", "break"]]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_lines_are_tokenized_and_empty_ones_are_ignored(tmp_path, compress):
    path = tmp_path / "captions.dat"  # the name does not matter
    path.write_bytes(compress(TEXT.encode()))
    assert list(read_text_captions(path)) == WORDS
    assert list(read_text_captions(path, str.split)) != WORDS


DAMAGED = {
    "absent": (None, "no such text file"),
    "empty": (b"", "has no caption"),
    "of empty lines": (b"\n . \n", "has no caption"),
    "not UTF-8": (b"a dog\n\xff\xfe\n", "line 2 is not UTF-8"),
    "binary": (b"a dog\nPK\x00\x00\n", "line 2 is not UTF-8"),
    "cut gzip": (gzip.compress(b"a dog\n" * 999)[:-20], "cannot be read as text"),
    "damaged gzip": (gzip.compress(b"a dog\n")[:-8] + bytes(8), "CRC"),
    "a long line": (b"a dog\n" + b"a " * MAX_LINE_BYTES, "line 2 must have at most"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_file_that_is_no_text_is_refused_in_one_line(tmp_path, case):
    content, message = DAMAGED[case]
    path = tmp_path / "captions.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_text_captions(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a regular file"):
        list(read_text_captions(tmp_path))


def test_the_limit_is_that_of_the_uncompressed_text(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_TEXT_BYTES", 10_000)
    path = tmp_path / "captions.gz"
    path.write_bytes(gzip.compress(b"a dog\n" * 2000))
    assert path.stat().st_size < 1000
    with pytest.raises(DataError, match="must have at most 10,000 bytes"):
        list(read_text_captions(path))
