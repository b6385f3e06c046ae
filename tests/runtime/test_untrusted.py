"""Texts and JSON of any origin: values, or one short line; no pipe is opened."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from show_attend_tell.runtime.errors import one_line, quote
from show_attend_tell.runtime.untrusted import (
    is_encodable,
    parse_json,
    read_text_bytes,
    require_regular,
)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_values_are_parsed_as_by_json_and_quoted_on_one_short_line(value):
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value
    assert len(quote(value)) <= 80
    assert len(quote([value, "x" * 1000, [[[[[[[[value]]]]]]]]])) <= 80


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[1,]", '{"a" 1}', "x" * 10**6, '"' + "a\n" * 10**5),
        *("9" * 5000, '{"a": [-' + "9" * 5000 + "]}"),
        *("[" * 10**5, "[" * 10**5 + "]" * 10**5, '{"a":' * 10**5 + "1" + "}" * 10**5),
        *(b"\xff\xfe\xfd", b'"\xff"', b"\0\0\0", b'{"a": "\xc3"}'),
    ],
)
def test_malformed_texts_are_a_value_error_of_one_short_line(text):
    with refused(ValueError, ".") as caught:
        parse_json(text)
    assert type(caught.value) is ValueError
    assert len(str(caught.value)) < 100


def test_half_of_a_surrogate_cannot_be_encoded():
    assert not is_encodable(parse_json(r'"\ud800"'))
    assert is_encodable(parse_json(r'"\ud83d\ude00"'))


def test_a_file_of_the_largest_size_is_read_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"12345678")
    assert read_text_bytes(path, limit=8) == b"12345678"
    with pytest.raises(OSError, match=r"at most 7 bytes. Received: 8"):
        read_text_bytes(path, limit=7)


@pytest.mark.timeout(20)
def test_pipes_devices_and_links_to_them_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "link").symlink_to("pipe")
    for path in (*tmp_path.iterdir(), tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read_text_bytes(path)


def test_absent_files_have_the_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        require_regular(tmp_path / "absent")


def test_values_are_quoted_or_named_by_their_type():
    assert quote("a\nb\x1b") == r"'a\nb\x1b'"
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert quote(nested) == "list, too large to print"
    assert quote(10**5000) == "int, too large to print"


def test_a_message_becomes_one_line_of_limited_length():
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(KeyError()) == "KeyError"
    assert len(one_line(ValueError("x" * 1000))) == 200
