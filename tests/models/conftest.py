"""A tiny captioner and a batch, shared by the tests of the captioner."""

import numpy as np
import pytest
import tiny_captioner as tiny


@pytest.fixture(scope="module")
def batch():
    """Annotations, inputs, targets."""
    return tiny.batch(np.random.default_rng(1502_03044))


@pytest.fixture(scope="module")
def model():
    return tiny.build(np.random.default_rng(3044))


@pytest.fixture(scope="module")
def photos():
    """Annotations of five photos."""
    return tiny.photos(np.random.default_rng(9), 5)
