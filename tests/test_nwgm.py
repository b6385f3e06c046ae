"""Soft attention approximates the marginal likelihood, Sec. 4.2.1: the identity.

The normalised weighted geometric mean of the softmaxes of every location, weighted by
alpha, is the softmax of the expected logits.
"""

import numpy as np
import oracle
import pytest
import tiny_captioner as tiny
from keras import ops
from tiny_captioner import TOLERANCE, D, K, L, m, n


def location_logits(model, rng):
    """Return the model's logits were each location looked at alone, and alpha."""
    a = rng.standard_normal((L, D)).astype("f4")
    embedded, h = (rng.standard_normal(width).astype("f4") for width in (m, n))
    alpha = oracle.softmax(rng.standard_normal(L))
    logits = model.decoder.readout(
        np.tile(embedded, (L, 1)),
        ops.convert_to_tensor(np.tile(h, (L, 1))),
        a,
        lambda x: x,
    )
    return np.asarray(logits, float), alpha, (a, embedded, h)


@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_nwgm_is_the_softmax_of_the_expected_logits(rng, spread):
    logits, alpha, _ = location_logits(tiny.build(rng, spread=spread), rng)
    p = np.array([oracle.softmax(row) for row in logits])
    geometric = np.prod(p ** alpha[:, None], axis=0)
    found = geometric / geometric.sum()
    assert found.shape == (K,)
    expected = ops.softmax(ops.convert_to_tensor(np.float32(alpha @ logits)))
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    assert np.abs(found - alpha @ p).max() > 1e-4  # not the arithmetic mean


def test_without_the_tanh_the_expected_context_gives_the_expected_logits(rng):
    model = tiny.build(rng)
    _, alpha, (a, embedded, h) = location_logits(model, rng)
    p = tiny.weights(model)

    def linear(z_hat):  # the deep output as Eq. (7) prints it
        return (embedded + h @ p["l_h"] + p["l_b"] + z_hat @ p["l_z"]) @ p["l_o"]

    expected = sum(w * linear(a_i) for w, a_i in zip(alpha, a, strict=True))
    np.testing.assert_allclose(linear(oracle.context(a, alpha)), expected, **TOLERANCE)
