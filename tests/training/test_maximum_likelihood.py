"""The compiled training step, whole and in parts."""

import numpy as np
import pytest
from tiny_captioner import build, captions, photos
from tiny_run import experiment

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.training.maximum_likelihood import compiled_step
from show_attend_tell.training.optimizer import make_optimizer


def _trained(precision, steps=3):
    """Return the losses of a few steps, the model and its optimiser."""
    model = build(np.random.default_rng(1), spread=0.3)
    settings = experiment(training={"precision": precision, "jit_compile": True})
    optimizer = make_optimizer(settings.training, 10)
    model.compile(optimizer=optimizer)
    optimizer.build(model.trainable_variables)
    step = compiled_step(model, settings.training)
    rng = np.random.default_rng(2)
    inputs, targets = captions(rng)
    x = {"annotations": photos(rng), "tokens": inputs}
    return [float(step(x, targets)["loss"]) for _ in range(steps)], model, optimizer


def test_steps_in_bfloat16_follow_those_in_float32():
    losses, model, optimizer = _trained("float32")
    rounded, other, other_optimizer = _trained("bfloat16")
    assert rounded != losses
    np.testing.assert_allclose(rounded, losses, rtol=0.02)
    assert losses[-1] < losses[0]
    assert int(other_optimizer.iterations) == int(optimizer.iterations) == 3
    norms = [float(o.gradient_norm) for o in (optimizer, other_optimizer)]
    assert norms[1] == pytest.approx(norms[0], rel=0.05)
    moved = [
        np.abs(a - b).max() for a, b in zip(model.weights, other.weights, strict=True)
    ]
    assert max(moved) < 0.05


def test_what_is_written_while_training_in_bfloat16_is_written_in_float32():
    _, model, _ = _trained("bfloat16", steps=1)
    twin = build(np.random.default_rng(5))
    twin.set_weights(model.get_weights())
    features = photos(np.random.default_rng(3))
    ours, theirs = (
        m.generate(features, DecodingSettings(beam=2, max_words=4))
        for m in (model, twin)
    )
    np.testing.assert_array_equal(ours.log_probs, theirs.log_probs)
