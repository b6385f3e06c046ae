"""The decoder without a photo."""

import numpy as np
import oracle
import pytest
from keras import ops
from tiny_captioner import (
    TOLERANCE,
    VARIANTS,
    B,
    D,
    L,
    build,
    captions,
    gradient_function,
    run_in,
    weights,
)

from show_attend_tell.models.language_model import context_weights, text_logits
from show_attend_tell.models.losses import token_losses

MODES = ("eager", "jit")


@pytest.fixture(params=VARIANTS)
def model(request, rng):
    return build(rng, **VARIANTS[request.param])


@pytest.mark.parametrize("mode", MODES)
def test_logits_are_those_of_a_photo_whose_annotations_are_zero(model, rng, mode):
    tokens, _ = captions(rng)
    found = run_in(mode, lambda tokens: text_logits(model, tokens), tokens)
    p, nothing = weights(model), np.zeros((L, D))
    for row, words in zip(found, tokens, strict=True):
        expected = oracle.run(p, nothing, words, model.settings)["logits"]
        np.testing.assert_allclose(row, expected, **TOLERANCE)


def test_the_context_weights_are_those_without_gradient(model, rng):
    """The captioner itself computes attention, of a photo whose annotations are 0."""
    tokens, targets = captions(rng)
    nothing = np.zeros((B, L, D), np.float16)

    def loss():
        logits = model({"annotations": nothing, "tokens": tokens})["logits"]
        return ops.sum(token_losses(logits, targets)), 0

    gradients, _ = gradient_function(loss, model)()
    without = {name for name, gradient in gradients.items() if not np.any(gradient)}
    assert without == {weight.name for weight in context_weights(model.decoder)}
