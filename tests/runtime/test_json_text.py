"""JSON of any origin: values, or one short line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.runtime.json_text import is_encodable, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_values_are_parsed_as_by_json(value):
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


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
    with pytest.raises(ValueError, match=r".") as caught:
        parse_json(text)
    assert type(caught.value) is ValueError
    assert len(str(caught.value)) < 100
    assert "\n" not in str(caught.value)


def test_half_of_a_surrogate_cannot_be_encoded():
    assert not is_encodable(parse_json(r'"\ud800"'))
    assert is_encodable(parse_json(r'"\ud83d\ude00"'))
