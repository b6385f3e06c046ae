"""The terms of the loss equal the oracle's; padding is ignored."""

import numpy as np
import pytest
from tiny_captioner import (
    MODES,
    K,
    run_in,
)

from show_attend_tell.models.losses import (
    token_losses,
)


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_of_huge_logits_neither_overflows_nor_vanishes(mode):
    logits = np.zeros((1, 2, K), np.float32)
    logits[0, 0, :2], logits[0, 1] = (3e4, -1e9), -1e9
    logits[0, 1, 3] = 0.0  # a forbidden word has -1e9
    targets = np.array([[4, 3]])
    np.testing.assert_allclose(run_in(mode, token_losses, logits, targets), [[3e4, 0]])
