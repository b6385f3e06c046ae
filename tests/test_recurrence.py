"""The hand-written gradient of the recurrence against autodiff of single steps."""

import keras
import numpy as np
import pytest

from show_attend_tell.decoder import Decoder
from tests.tiny_captioner import TOLERANCE, arrays, build, captions, photos

tf = pytest.importorskip("tensorflow")


def _by_steps(self, word_gates, h, c, annotations, projected):
    """Decoder.unroll as a loop over Decoder.step that autodiff differentiates."""
    steps = []
    for t in range(word_gates.shape[1]):
        kernel = self.state_kernel()
        step = self.step(word_gates[:, t], h, c, annotations, projected, kernel)
        h, c = step.h, step.c
        steps.append(step)
    fields = ("h", "z_hat", "alpha", "beta")
    return tuple(keras.ops.stack([getattr(s, f) for s in steps], 1) for f in fields)


def _run(model, annotations, tokens, targets, mode):
    """Return outputs, loss and the gradients of weights and annotations."""

    def run(annotations, tokens, targets):
        with tf.GradientTape() as tape:
            tape.watch(annotations)
            outputs = model({"annotations": annotations, "tokens": tokens}, training=True)
            loss = model.compute_loss(y=targets, y_pred=outputs)
            # a cotangent of beta too, which the paper's loss does not have
            loss = loss + tf.reduce_sum(outputs["beta"] ** 2)
        inputs = [*(v.value for v in model.trainable_variables), annotations]
        return outputs, loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, inputs)]

    if mode != "eager":
        run = tf.function(run, jit_compile=mode == "xla")
    return arrays(run(tf.constant(annotations, tf.float32), tokens, targets))


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
@pytest.mark.parametrize("changes", [{}, {"selector": False}, {"activation": "relu"}])
@pytest.mark.parametrize("lengths", [(4, 2, 3), (1, 0, 4)])
def test_outputs_and_gradients_are_those_of_autodiff(
    monkeypatch, mode, changes, lengths
):
    model = build(np.random.default_rng(1), **{"attention_layers": 1, **changes})
    rng = np.random.default_rng(2)
    inputs = (photos(rng), *captions(rng, lengths))
    ours = _run(model, *inputs, mode)
    monkeypatch.setattr(Decoder, "unroll", _by_steps)
    theirs = _run(model, *inputs, mode)
    for one, other in zip(*map(keras.tree.flatten, (ours, theirs)), strict=True):
        np.testing.assert_allclose(one, other, **TOLERANCE)


@pytest.mark.parametrize("size", [20.0, 60.0, 1e4])
def test_large_scores_of_attention_stay_finite(size):
    model = build(np.random.default_rng(1))
    model.decoder.w_h.assign(size * np.sign(model.decoder.w_h))
    model.decoder.w_a[0].assign(size * np.sign(model.decoder.w_a[0]))
    rng = np.random.default_rng(2)
    for value in keras.tree.flatten(_run(model, photos(rng), *captions(rng), "xla")):
        assert np.isfinite(value).all()
