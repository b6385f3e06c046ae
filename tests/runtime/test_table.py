"""Rows of reports: aligned text, Markdown and LaTeX."""

from show_attend_tell.runtime.table import align, latex, markdown

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


def test_latex_escapes_cells():
    assert latex([["a_b", "c&d", "e"], ["1", "2", "3 %"]], "lr") == [
        "\\begin{tabular}{lrr}",
        "\\hline",
        "a\\_b & c\\&d & e \\\\",
        "\\hline",
        "1 & 2 & 3 \\% \\\\",
        "\\hline",
        "\\end{tabular}",
    ]
