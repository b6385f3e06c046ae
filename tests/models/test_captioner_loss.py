"""The captioner's loss and gradient equal the oracle's; batches and padding."""

import keras
import numpy as np
import oracle
import pytest
import tiny_captioner as tiny
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from nightly import nightly
from tiny_captioner import LENGTHS, MODES, VARIANTS, B, K, T

from show_attend_tell.models.losses import token_losses
from show_attend_tell.reference import lstm

# Variants whose gradient is tested quickly.
KEPT = ("the default", "the mean annotation")


@pytest.mark.parametrize(
    ("smoothing", "mode"),
    [
        (0.0, "eager"),
        (0.2, "eager"),
        *nightly(*((0.2, m) for m in MODES if m != "eager")),
    ],
)
def test_the_loss_is_the_mean_over_captions_of_the_oracles(rng, batch, smoothing, mode):
    changes = {"label_smoothing": smoothing, "doubly_stochastic": 0.7}
    model = tiny.build(rng, changes)
    expected = oracle_loss(tiny.weights(model), model.settings, batch, smoothing, 0.7)
    found = tiny.loss_of(model, *batch, training=True, mode=mode)
    assert found == pytest.approx(expected, rel=1e-5)


def oracle_loss(p, settings, batch, smoothing, strength):
    """Return L_d, the mean over the captions of a batch, for weights ``p``."""
    losses = []
    for a, inputs, targets, length in zip(*batch, LENGTHS, strict=True):
        a, L = a.astype(float), len(a)
        if not settings.attends:
            a = a.mean(axis=0, keepdims=True)
        read = lstm.read(p, settings, a, inputs[:length])
        alpha = read["alpha"] if settings.attends else read["alpha"].repeat(L, -1) / L
        words = targets[:length]
        parts = oracle.caption_loss(read["logits"], alpha, words, smoothing, strength)
        losses.append(sum(parts))
    return np.mean(losses)


@pytest.mark.parametrize(
    ("variant", "mode"),
    [
        *((name, "eager") for name in KEPT),
        *nightly(
            ("the default", "jit"),
            *((name, "eager") for name in VARIANTS if name not in KEPT),
        ),
    ],
)
def test_the_gradient_is_the_slope_of_the_oracles_loss(rng, batch, variant, mode):
    changes = {"label_smoothing": 0.1, "doubly_stochastic": 0.7}
    model = tiny.build(rng, changes, **VARIANTS[variant])

    def loss(p):
        return oracle_loss(p, model.settings, batch, 0.1, 0.7)

    a, inputs, targets = map(keras.ops.convert_to_tensor, batch)

    def trained_loss():
        outputs = model({"annotations": a, "tokens": inputs}, training=True)
        return model.compute_loss(y=targets, y_pred=outputs, training=True)

    found = tiny.gradients(trained_loss, model, mode)
    oracle.assert_slopes(found, tiny.weights(model), loss, rng)


@limits(max_examples=4)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, T), min_size=1, max_size=3),
    longer=st.integers(0, 3),
    empty=st.integers(0, 2),
)
def test_the_loss_of_a_padded_batch_is_the_mean_of_its_captions_alone(
    model, seed, lengths, longer, empty
):
    rng = np.random.default_rng(seed)
    a, inputs, targets = tiny.batch(rng, [*lengths, *[0] * empty], T + longer)
    alone = [
        tiny.loss_of(
            model, a[b : b + 1], inputs[b : b + 1, :own], targets[b, None, :own]
        )
        for b, own in enumerate(lengths)
    ]
    whole = tiny.loss_of(model, a, inputs, targets)
    assert whole == pytest.approx(np.mean(alone), rel=1e-5)


def test_a_batch_of_padding_alone_costs_nothing(model, batch):
    nothing = np.zeros((B, T), np.int32)
    assert tiny.loss_of(model, batch[0], nothing, nothing) == 0


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_of_huge_logits_neither_overflows_nor_vanishes(mode):
    logits = np.zeros((1, 2, K), np.float32)
    logits[0, 0, :2], logits[0, 1] = (3e4, -1e9), -1e9
    logits[0, 1, 3] = 0.0  # a forbidden word has -1e9
    found = tiny.run_in(mode, token_losses, logits, np.array([[4, 3]]))
    np.testing.assert_allclose(found, [[3e4, 0]])
