"""Errors whose message is one line."""

import contextlib

import pytest


@contextlib.contextmanager
def refused(error, match=None):
    """Expect an error whose message matches a pattern and is one line."""
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert "\n" not in str(caught.value)


def refusal(error, function, *arguments, **options):
    """Return the one line with which a call is refused."""
    with refused(error) as caught:
        function(*arguments, **options)
    return str(caught.value)
