"""The terms of the loss equal the oracle's; padding is ignored."""

import numpy as np
import oracle
import pytest
from tiny_captioner import (
    LENGTHS,
    MODES,
    TOLERANCE,
    K,
    L,
    T,
    captions,
    run_in,
)

from show_attend_tell.models.losses import (
    caption_losses,
    token_losses,
)
from show_attend_tell.reference.lstm import softmax


def random_batch(rng, lengths=LENGTHS, steps=T):
    """Return logits, alpha, targets and mask of captions of the given lengths."""
    rows = len(lengths)
    logits = rng.standard_normal((rows, steps, K)).astype(np.float32)
    alpha = softmax(rng.standard_normal((rows, steps, L)))
    _, targets = captions(rng, lengths, steps)
    return logits, alpha.astype(np.float32), targets, targets > 0


def expected(logits, alpha, targets, lengths=LENGTHS, smoothing=0.0, strength=1.0):
    """Return the oracle's two parts, (2, B)."""
    parts = [
        oracle.caption_loss(
            logits[b, :length].astype(float),
            alpha[b, :length].astype(float),
            targets[b, :length],
            smoothing,
            strength,
        )
        for b, length in enumerate(lengths)
    ]
    return np.transpose(parts)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_captions_loss_is_recomputed_in_numpy(rng, mode, smoothing):
    logits, alpha, targets, mask = random_batch(rng)

    def compute(logits, alpha, targets, mask):
        return caption_losses(logits, alpha, targets, mask, smoothing, strength=0.7)

    parts = run_in(mode, compute, logits, alpha, targets, mask)
    target = expected(logits, alpha, targets, smoothing=smoothing, strength=0.7)
    np.testing.assert_allclose(parts, target, **TOLERANCE)


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_of_huge_logits_neither_overflows_nor_vanishes(mode):
    logits = np.zeros((1, 2, K), np.float32)
    logits[0, 0, :2], logits[0, 1] = (3e4, -1e9), -1e9
    logits[0, 1, 3] = 0.0  # a forbidden word has -1e9
    targets = np.array([[4, 3]])
    np.testing.assert_allclose(run_in(mode, token_losses, logits, targets), [[3e4, 0]])
