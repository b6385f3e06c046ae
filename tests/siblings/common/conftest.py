"""Prepared digits and words for the tests of all models beside the captioner."""

import made_up_digits
import pytest
import tiny_reader
from eager import DIGITS, WORDS, compute_eagerly
from page_fixtures import browser, captioned, page  # noqa: F401
from served import serving
from tiny_tabs import tiny_tabs


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A prepared folder of words and of digits: 48, 16 and 20 of the three splits."""
    work = tiny_reader.prepare_words(tmp_path_factory.mktemp("work"))
    return made_up_digits.prepare(work, test=20)


@pytest.fixture
def eager_models(monkeypatch):
    """Let trained models of digits and words compute without compiling."""
    compute_eagerly(monkeypatch, DIGITS + WORDS)


@pytest.fixture(scope="session")
def address(pipeline):
    """The address of a server of a captioner, digits and words."""
    with serving({"Tiny": pipeline}, tabs=tiny_tabs()) as address:
        yield address
