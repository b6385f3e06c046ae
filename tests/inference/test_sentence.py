"""Captions as sentences."""

import pytest

from show_attend_tell.inference.result import as_sentence


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a red circle .", "A red circle."),
        ("été", "Été."),
        ("", ""),
        (" . ", ""),
        ("a man 's hat", "A man's hat."),
        ("two men , one dog .", "Two men, one dog."),
        ("he does n't see it !", "He doesn't see it!"),
        ("a t-shirt & 2 's", "A t-shirt & 2's."),
        ("a 'sign ' .5", "A 'sign ' .5."),
    ],
)
def test_a_sentence_has_a_capital_and_a_full_stop(caption, expected):
    assert as_sentence(caption) == expected


def test_a_sentence_stays_as_it_is():
    for text in ("a dog 's ball .", "Who ?", "A dog."):
        assert as_sentence(as_sentence(text)) == as_sentence(text)
