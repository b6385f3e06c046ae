"""Cases of a matrix that ``make test`` leaves to ``make nightly``."""

from collections.abc import Collection

import pytest


def nightly(*cases):
    """Return further cases of a matrix; a tuple holds the arguments of one case."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly
        )
        for case in cases
    ]


def others_nightly(cases, kept: Collection):
    """Return cases, of which all but the kept ones are nightly."""
    assert set(kept) <= set(cases)
    return [case if case in kept else nightly(case)[0] for case in cases]
