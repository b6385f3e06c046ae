"""What the tests of words share."""

import pytest
from eager import WORDS, compute_eagerly


@pytest.fixture
def eager_models(monkeypatch):
    """Let trained models of words compute without compiling."""
    compute_eagerly(monkeypatch, WORDS)
