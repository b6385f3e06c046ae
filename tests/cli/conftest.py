"""Make a verb fail."""

from types import SimpleNamespace

import pytest

import data_prep.prepare
from show_attend_tell.config import experiments


@pytest.fixture
def replace_prepare(monkeypatch):
    """Return a function that replaces what the verb ``prepare`` does."""

    def replace(function):
        captions = SimpleNamespace(task="caption", name="mine")
        monkeypatch.setattr(experiments, "load_experiment", lambda *_: captions)
        monkeypatch.setattr(data_prep.prepare, "prepare", function)

    return replace


@pytest.fixture
def prepare_raises(replace_prepare):
    """Return a function that makes the verb ``prepare`` raise an error."""

    def arm(error: BaseException):
        def raise_it(*arguments):
            raise error

        replace_prepare(raise_it)

    return arm
