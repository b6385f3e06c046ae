"""What the tests of digits share."""

import pytest
from eager import DIGITS, compute_eagerly


@pytest.fixture
def eager_models(monkeypatch):
    """Let trained models of digits compute without compiling."""
    compute_eagerly(monkeypatch, DIGITS)
