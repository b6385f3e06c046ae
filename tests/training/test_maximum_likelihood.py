"""The compiled step equals the uncompiled one; captions after steps in bfloat16."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_transformer
from tiny_captioner import build, captions, photos
from tiny_run import experiment

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.training.optimizer import make_optimizer
from show_attend_tell.training.step_tensorflow import compiled_step


def trained(lengths, compiled=True, build=build, **changes):
    """Return a model after an update on a batch of each length, and the losses."""
    changes |= {"learning_rate": 0.01, "jit_compile": True}
    settings = experiment(training=changes).training
    model = build(np.random.default_rng(1), spread=0.3)
    model.compile(optimizer=make_optimizer(settings, 10), jit_compile=compiled)
    model.optimizer.build(model.trainable_variables)
    step = compiled_step(model, settings)
    rng, losses = np.random.default_rng(2), []
    for steps in lengths:
        tokens, targets = captions(rng, (2, 1, 3), steps)
        x = {"annotations": tf.constant(photos(rng)), "tokens": tf.constant(tokens)}
        batch = x, tf.constant(targets)
        values = step(*batch) if compiled else model.train_step(batch)
        losses.append(float(values["loss"]))
    return model, losses


@pytest.mark.parametrize(
    ("optimizer", "clip_norm", "lengths"),
    [
        pytest.param("rmsprop", 0.0, (3,), marks=pytest.mark.slow),
        pytest.param("adam", 0.1, (3,), marks=pytest.mark.nightly),
        pytest.param("adamw", 0.1, (4, 3), marks=pytest.mark.slow),
    ],
)
def test_every_optimiser_takes_the_same_step_compiled(optimizer, clip_norm, lengths):
    changes = {"optimizer": optimizer, "clip_norm": clip_norm}
    models = [trained(lengths, compiled, **changes)[0] for compiled in (True, False)]
    for one, other in zip(*(model.weights for model in models), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_a_transformer_of_the_mean_annotation_is_trained():
    """Its queries and keys, which one location ignores, have a gradient: 0."""

    def mean(rng, spread):
        return tiny_transformer.build(rng, spread, model={"attention": "mean"})

    first, last = (trained((3,) * n, False, mean, optimizer="adam") for n in (1, 9))
    assert last[1][-1] < first[1][0]


@pytest.mark.nightly
def test_captions_are_generated_in_float32_after_training_in_bfloat16():
    (model, rounded), (_, losses) = (
        trained((4, 4, 4), precision=name) for name in ("bfloat16", "float32")
    )
    assert rounded != losses
    np.testing.assert_allclose(rounded, losses, rtol=0.02)
    twin = build(np.random.default_rng(5))
    twin.set_weights(model.get_weights())
    features = photos(np.random.default_rng(3))
    ours, theirs = (
        m.generate(features, DecodingSettings(method="greedy", max_words=4))
        for m in (model, twin)
    )
    np.testing.assert_array_equal(ours.log_probs, theirs.log_probs)
