"""The compiled training step in float32 and in bfloat16."""

import numpy as np
import pytest
from tiny_captioner import build, captions, photos
from tiny_run import experiment

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.training.maximum_likelihood import compiled_step
from show_attend_tell.training.optimizer import make_optimizer

STEPS = 3


@pytest.fixture(scope="module")
def trained():
    """Train in either precision: losses of a few steps, model and optimiser."""
    return {name: _train(name) for name in ("float32", "bfloat16")}


def _train(precision):
    model = build(np.random.default_rng(1), spread=0.3)
    # In float32 by graph alone; tests/models/test_compiled_step.py has XLA there.
    compiled = precision == "bfloat16"
    settings = experiment(training={"precision": precision, "jit_compile": compiled})
    optimizer = make_optimizer(settings.training, 10)
    model.compile(optimizer=optimizer)
    optimizer.build(model.trainable_variables)
    step = compiled_step(model, settings.training)
    rng = np.random.default_rng(2)
    inputs, targets = captions(rng)
    x = {"annotations": photos(rng), "tokens": inputs}
    return [float(step(x, targets)["loss"]) for _ in range(STEPS)], model, optimizer


def test_steps_in_bfloat16_follow_those_in_float32(trained):
    losses, model, optimizer = trained["float32"]
    rounded, other, other_optimizer = trained["bfloat16"]
    assert rounded != losses
    np.testing.assert_allclose(rounded, losses, rtol=0.02)
    assert losses[-1] < losses[0]
    assert int(other_optimizer.iterations) == int(optimizer.iterations) == STEPS
    norms = [float(o.gradient_norm) for o in (optimizer, other_optimizer)]
    assert norms[1] == pytest.approx(norms[0], rel=0.05)
    moved = [
        np.abs(a - b).max() for a, b in zip(model.weights, other.weights, strict=True)
    ]
    assert max(moved) < 0.05


def test_captions_are_generated_in_float32_after_training_in_bfloat16(trained):
    _, model, _ = trained["bfloat16"]
    twin = build(np.random.default_rng(5))
    twin.set_weights(model.get_weights())
    features = photos(np.random.default_rng(3))
    ours, theirs = (
        m.generate(features, DecodingSettings(method="greedy", max_words=4))
        for m in (model, twin)
    )
    np.testing.assert_array_equal(ours.log_probs, theirs.log_probs)
