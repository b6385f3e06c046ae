import hard_model
import numpy as np
import pytest
import tiny_captioner as tiny
from hard_model import outputs_of
from keras import ops

from show_attend_tell.term_norms import TermNorms


def test_norms_are_those_of_each_terms_gradient_and_nothing_is_touched(rng):
    model = hard_model.build(rng, {"samples": 3}, dropout=0.5)
    model.hard_attention.baseline.assign(-2.0)
    batch = tiny.batch(rng, (4, 2, 0))
    before = [np.array(v) for v in model.variables]
    found = TermNorms(model, batch, seed=3)(step=200)
    for old, new in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, new)
    u = np.random.default_rng([3, 200]).random((3, 4), np.float32)
    draws = hard_model.Draws(u, np.ones(3, "f4"))
    mask = np.float32(batch[2] > 0)

    def term(k):
        told = outputs_of(model, *batch[:2], draws)
        nll = ops.sparse_categorical_crossentropy(batch[2], told["logits"], True)
        words = -nll * mask
        rest = model.hard_attention.terms(ops.stop_gradient(words), told, mask)
        return ops.sum((words, *rest)[k]) / 2  # one row is padding

    for k, name in enumerate(("words", "reinforce", "entropy")):
        grads = tiny.gradients(lambda k=k: term(k), model)
        norm = np.sqrt(sum(np.square(g).sum() for g in grads.values()))
        assert found[f"gradient_norm_{name}"] == pytest.approx(norm, rel=1e-4)
        assert norm > 0
