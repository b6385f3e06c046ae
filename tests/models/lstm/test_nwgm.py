"""Soft attention approximates the marginal likelihood, Sec. 4.2.1.

The normalised weighted geometric mean (NWGM) of the distributions from every location
alone, weighted by alpha, is the softmax of the expected logits. The model's own
distribution, from the expected context, is that mean to first order in its weights on
z.
"""

import hard_model
import numpy as np
import pytest
import tiny_captioner as tiny
from keras import ops
from tiny_captioner import START, TOLERANCE, K, L

from show_attend_tell.reference.beam import log_softmax
from show_attend_tell.reference.lstm import softmax

READS_Z = ("lstm_z", "l_z")  # the weights that multiply the context


def first_word(model, photo):
    """Return the first word's logits and alpha, and its logits from each location.

    Shapes (K,), (L,), (L, K).
    """
    inputs = np.full((L, 1), START, np.int32)
    photos = np.repeat(photo, L, axis=0)
    soft = model({"annotations": photo, "tokens": inputs[:1]})
    each = hard_model.forced(
        model, ops.convert_to_tensor(photos), inputs, np.arange(L)[:, None]
    )
    logits, alpha = (
        np.asarray(soft[name][0, 0], float) for name in ("logits", "alpha")
    )
    return logits, alpha, np.asarray(each["logits"][:, 0], float)


def nwgm(p, alpha):
    """Return the normalised weighted geometric mean of distributions (L, K)."""
    geometric = np.prod(p ** alpha[:, None], axis=0)
    return geometric / geometric.sum()


@pytest.fixture
def photo(rng):
    return tiny.photos(rng, 1).astype(np.float32)


@pytest.mark.parametrize("spread", [0.5, 1.0])
def test_nwgm_is_the_softmax_of_the_expected_logits(rng, photo, spread):
    _, alpha, logits = first_word(
        hard_model.build(rng, spread=spread, selector=False), photo
    )
    p = softmax(logits)
    expected = ops.softmax(ops.convert_to_tensor(np.float32(alpha @ logits)))
    found = nwgm(p, alpha)
    assert found.shape == (K,)
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    assert np.abs(found - alpha @ p).max() > 1e-4  # not the arithmetic mean


def test_the_models_word_is_the_nwgm_to_first_order_in_its_weights_on_z(rng, photo):
    model = hard_model.build(rng)
    weights = {w.name: w for w in model.decoder.weights if w.name in READS_Z}
    whole = {name: np.asarray(weight) for name, weight in weights.items()}
    assert whole.keys() == set(READS_Z)

    def distances(scale):
        """Return the spread over locations and the model's distance from the NWGM."""
        for name, weight in weights.items():
            weight.assign(scale * whole[name])
        logits, alpha, each = first_word(model, photo)
        assert alpha.max() - alpha.min() > 0.05  # a uniform alpha would prove little
        p = softmax(each)
        apart = np.log(p).std(axis=0).max()
        return apart, np.abs(log_softmax(logits) - np.log(nwgm(p, alpha))).max()

    (apart, error), (apart_half, error_half) = distances(0.2), distances(0.1)
    assert apart / apart_half == pytest.approx(2, rel=0.1)
    assert error / error_half == pytest.approx(4, rel=0.15)
    assert error < 0.1 * apart
