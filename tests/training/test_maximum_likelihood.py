"""The compiled step equals the uncompiled one; steps in float32 and bfloat16."""

import numpy as np
import pytest
import tensorflow as tf
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
    # In float32 by graph alone; the tests below compile it with XLA.
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


def weights_after(settings, compiled, lengths):
    """Return the weights after an update on a batch of each length."""
    model = build(np.random.default_rng(1))
    model.compile(optimizer=make_optimizer(settings, 10), jit_compile=compiled)
    model.optimizer.build(model.trainable_variables)
    rng = np.random.default_rng(2)
    for steps in lengths:
        tokens, targets = captions(rng, (2, 1, 3), steps)
        x = {"annotations": tf.constant(photos(rng)), "tokens": tf.constant(tokens)}
        if compiled:
            compiled_step(model, settings)(x, tf.constant(targets))
        else:
            model.train_step((x, tf.constant(targets)))
    return [np.asarray(weight) for weight in model.weights]


@pytest.mark.parametrize(
    ("optimizer", "clip_norm", "lengths"),
    [
        pytest.param("rmsprop", 0.0, (3,), marks=pytest.mark.slow),
        ("adam", 0.1, (3,)),
        pytest.param("adamw", 0.1, (4, 3), marks=pytest.mark.slow),
    ],
)
def test_every_optimiser_takes_the_same_step_compiled(optimizer, clip_norm, lengths):
    changes = {"optimizer": optimizer, "clip_norm": clip_norm, "jit_compile": True}
    settings = experiment(training={**changes, "learning_rate": 0.01}).training
    pairs = zip(
        weights_after(settings, True, lengths),
        weights_after(settings, False, lengths),
        strict=True,
    )
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
