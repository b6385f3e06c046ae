"""The messages of errors: one line each, whatever they quote."""

from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.runtime.errors import one_line, quote

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_a_quoted_value_is_short_and_on_one_line(value):
    assert len(quote(value)) <= 80
    assert len(quote([value, "x" * 1000, [[[[[[[[value]]]]]]]]])) <= 80
    assert quote("a\nb\x1b") == r"'a\nb\x1b'"


def test_values_without_a_representation_are_named_by_their_type():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert quote(nested) == "list, too large to print"
    assert quote(10**5000) == "int, too large to print"


def test_a_message_becomes_one_line_of_limited_length():
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(KeyError()) == "KeyError"
    assert len(one_line(ValueError("x" * 1000))) == 200
