"""Rows of reports: aligned text and Markdown."""

from show_attend_tell.runtime.table import align, markdown

ROWS = [["", "beam 1", "beam 5"], ["CIDEr", "50.6", "-"], ["BLEU-4", "1"]]


def test_the_first_column_is_aligned_left_and_all_others_right():
    expected = ["        beam 1  beam 5", "CIDEr     50.6       -", "BLEU-4       1"]
    assert align(ROWS) == expected
    assert align([]) == []


def test_the_last_letter_holds_for_all_further_columns():
    assert align([["a", "b", "c"], ["aa", "bb", "cc"]], "rl") == [
        " a  b   c",
        "aa  bb  cc",
    ]


def test_markdown_escapes_bars_in_cells():
    assert markdown([["a|b", "c"], ["1", "2"]]) == [
        "| a\\|b | c |",
        "| --- | --- |",
        "| 1 | 2 |",
    ]
