"""The tabs of digits and words with small models."""

import dataclasses

from tiny_digits import tiny_models
from tiny_reader import tiny_page_reader

from show_attend_tell.siblings.digits import plugin as digits
from show_attend_tell.siblings.digits import tab as digits_tab
from show_attend_tell.siblings.words import plugin as words
from show_attend_tell.siblings.words import tab as words_tab


def digits_with(models):
    """Return the tab of digits with the models that a function returns."""
    return dataclasses.replace(
        digits.plugin.tab, router=lambda queue: digits_tab.make_router(queue, models)
    )


def words_with(reader):
    """Return the tab of words with the reader that a function returns."""
    return dataclasses.replace(
        words.plugin.tab, router=lambda queue: words_tab.make_router(queue, reader)
    )


def tiny_tabs():
    """Return both tabs."""
    return [digits_with(tiny_models), words_with(tiny_page_reader)]
