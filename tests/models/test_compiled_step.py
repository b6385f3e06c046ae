"""The compiled training step equals the uncompiled one."""

import numpy as np
import pytest
from tiny_captioner import build, captions, photos
from tiny_run import experiment

from show_attend_tell.training.maximum_likelihood import compiled_step
from show_attend_tell.training.optimizer import make_optimizer

tf = pytest.importorskip("tensorflow")


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
