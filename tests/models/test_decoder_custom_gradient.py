"""The hand-written gradient of the recurrence against autodiff of single steps."""

import keras
import numpy as np
import pytest
from tiny_captioner import TOLERANCE, arrays, build, captions, photos

from show_attend_tell.models.decoder import Decoder

tf = pytest.importorskip("tensorflow")


def _by_steps(
    self, word_gates, h, c, annotations, projected, compile_fn, select_weights
):
    """Decoder.unroll as a loop over Decoder.step that autodiff differentiates."""
    steps = []
    for t in range(word_gates.shape[1]):
        kernel = self.state_kernel()
        select = select_weights and (lambda alpha, t=t: select_weights(t, alpha)[0])
        step = self.step(word_gates[:, t], h, c, annotations, projected, kernel, select)
        h, c = step.h, step.c
        steps.append(step)
    fields = ("h", "z_hat", "alpha", "context_weights", "beta")
    return tuple(keras.ops.stack([getattr(s, f) for s in steps], 1) for f in fields)


def _model(changes):
    """Return a model; with hard attention half of the captions are sampled."""
    arguments = {"hard": {"drawn_per": "caption", "reward_scale": 1.0}}
    changes = {"attention_layers": 1, **changes}
    return build(np.random.default_rng(1), arguments, **changes)


def _run(model, annotations, tokens, targets, mode):
    """Return outputs, loss and the gradients of weights and annotations."""

    def run(annotations, tokens, targets):
        with tf.GradientTape() as tape:
            tape.watch(annotations)
            outputs = model(
                {"annotations": annotations, "tokens": tokens}, training=True
            )
            loss = model.compute_loss(y=targets, y_pred=outputs)
            # a cotangent of beta too, which the paper's loss does not have
            loss = loss + tf.reduce_sum(outputs["beta"] ** 2)
        inputs = [*(v.value for v in model.trainable_variables), annotations]
        return (
            outputs,
            loss,
            [tf.convert_to_tensor(g) for g in tape.gradient(loss, inputs)],
        )

    if mode != "eager":
        run = tf.function(run, jit_compile=mode == "xla")
    return arrays(run(tf.constant(annotations, tf.float32), tokens, targets))


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"selector": False}, {"activation": "relu"}, {"attention": "hard"}],
    ids=["tanh", "no gate", "relu", "hard"],
)
def test_outputs_and_gradients_are_those_of_autodiff(monkeypatch, mode, changes):
    rng = np.random.default_rng(2)
    inputs = (photos(rng), *captions(rng, (1, 0, 4)))
    ours = _run(_model(changes), *inputs, mode)
    monkeypatch.setattr(Decoder, "unroll", _by_steps)
    theirs = _run(_model(changes), *inputs, mode)
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


def test_compiled_parts_multiply_in_bfloat16_and_change_little_else(rng):
    model = build(rng)
    inputs = (photos(rng), *captions(rng))
    outputs, loss, gradients = _run(model, *inputs, "graph")
    parts = []

    def compiled(function):
        parts.append(function.__name__)
        return tf.function(function, autograph=False, jit_compile=True)

    model.compile_parts(compiled, "bfloat16")
    rounded, rounded_loss, rounded_gradients = _run(model, *inputs, "graph")
    assert parts == ["_prepare", "forward", "_backward"]
    assert rounded_loss != loss
    np.testing.assert_allclose(rounded_loss, loss, rtol=1e-2)
    for name, values in outputs.items():
        np.testing.assert_allclose(rounded[name], values, atol=0.1, err_msg=name)
    for ours, theirs in zip(rounded_gradients, gradients, strict=True):
        assert _cosine(ours, theirs) > 0.995


def _cosine(one, other):
    product = np.vdot(one, other)
    return product / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-12)


def test_compiled_parts_serve_hard_attention_too():
    rng = np.random.default_rng(2)
    inputs, found = (photos(rng), *captions(rng)), []
    for by_parts in (False, True):
        model = build(np.random.default_rng(1), attention="hard")  # the same draws
        if by_parts:
            model.compile_parts(lambda f: tf.function(f, autograph=False), "bfloat16")
        found.append(_run(model, *inputs, "graph"))
    (outputs, loss, gradients), (rounded, rounded_loss, rounded_gradients) = found
    np.testing.assert_array_equal(rounded["sampled"], outputs["sampled"])
    np.testing.assert_allclose(rounded_loss, loss, rtol=2e-2)
    for ours, theirs in zip(rounded_gradients, gradients, strict=True):
        assert _cosine(ours, theirs) > 0.99 or not np.any(theirs)


def test_compiled_parts_serve_training_alone(rng):
    model = build(rng)
    annotations, (tokens, _) = photos(rng), captions(rng)
    x = {"annotations": annotations, "tokens": tokens}
    before = arrays(model(x))
    model.compile_parts(lambda function: lambda *args: pytest.fail("not in training"))
    for ours, theirs in zip(
        *(keras.tree.flatten(o) for o in (before, arrays(model(x)))), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
