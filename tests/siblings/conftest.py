"""Prepared digits and words for the tests of all models beside the captioner."""

import made_up_digits
import pytest
import tiny_reader


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A prepared folder of words and of digits: 48, 16 and 20 of the three splits."""
    work = tiny_reader.prepare_words(tmp_path_factory.mktemp("work"))
    return made_up_digits.prepare(work, test=20)
