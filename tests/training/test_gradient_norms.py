"""The gradient norms of hard attention's three terms."""

import hard_model
import numpy as np
import pytest
import tensorflow as tf
import tiny_captioner as tiny
from hard_model import outputs_of
from keras import ops

from show_attend_tell.training.gradient_norms import TermNorms


@pytest.mark.parametrize(
    ("baseline", "eager"),
    [pytest.param("moving", False, marks=pytest.mark.slow), ("samples", True)],
)
def test_norms_are_those_of_each_terms_gradient_and_no_state_changes(
    rng, baseline, eager
):
    model = hard_model.build(rng, {"samples": 3, "baseline": baseline}, dropout=0.5)
    model.hard_attention.baseline.assign(-2.0)
    batch = tiny.batch(rng, (4, 2, 0))
    before = [np.array(v) for v in model.variables]
    tf.config.run_functions_eagerly(eager)
    try:
        found = TermNorms(model, batch, seed=3)(step=200)
    finally:
        tf.config.run_functions_eagerly(False)
    for old, new in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, new)
    u = np.random.default_rng([3, 200]).random((9, 4), np.float32)
    draws = hard_model.LocationNoise(u, np.ones(9, "f4"))
    targets = np.repeat(batch[2], 3, axis=0)
    mask = np.float32(targets > 0)

    def term(k):
        outputs = outputs_of(model, *batch[:2], draws, samples=3)
        nll = ops.sparse_categorical_crossentropy(targets, outputs["logits"], True)
        words = -nll * mask
        rest = model.hard_attention.terms(ops.stop_gradient(words), outputs, mask)
        return ops.sum((words, *rest)[k]) / 6  # one caption is padding

    for k, name in enumerate(("words", "reinforce", "entropy")):
        grads = tiny.gradients(lambda k=k: term(k), model)
        norm = np.sqrt(sum(np.square(g).sum() for g in grads.values()))
        assert found[f"gradient_norm_{name}"] == pytest.approx(norm, rel=1e-4)
        assert norm > 0
