"""The hand-written gradient equals autodiff of the steps: outputs and gradients.

Also the parts of a training step that `Captioner.compile_parts` compiles.
"""

import functools

import hard_model
import keras
import numpy as np
import pytest
from checks import assert_equal_leaves
from nightly import nightly
from tiny_captioner import TOLERANCE, T, arrays, build, captions, photos

from show_attend_tell.models.lstm.decoder import LstmDecoder, LstmMemory

tf = pytest.importorskip("tensorflow")

KINDS = {
    "tanh": {},
    "no gate": {"selector": False},
    "hard": {"attention": "hard"},
    "mean": {"attention": "mean"},
    "none": {"attention": "none"},
}
# compiled once, for all lengths, in this order
PARTS = [
    "_scale",
    "exp_twice",
    "step",
    "cross_entropy",
    "cross_entropy_gradient",
    "_step_backward",
    "_attention_gradients",
]
SAMPLED = np.float32([1, 0, 1])  # with hard attention two of three captions


def _unroll_by_autodiff(
    self, word_gates, h, c, annotations, projected, compile_fn, selection, precision
):
    """LstmDecoder.unroll as a loop over steps that autodiff differentiates."""
    steps = []
    memory = LstmMemory(annotations, projected, self.state_kernel())
    for t in range(word_gates.shape[1]):
        choose = functools.partial(_chosen, selection, t)
        h, c, attention = self.step(word_gates[:, t], h, c, memory, choose)
        steps.append((h, *attention))
    return tuple(keras.ops.stack(parts, 1) for parts in zip(*steps, strict=True))


def _chosen(selection, t, alpha):
    """Return the context weights of step t."""
    return selection.function(alpha, *(x[:, t] for x in selection.inputs))[0]


def _model(changes):
    arguments = {"hard": {"reward_scale": 1.0}}
    return build(np.random.default_rng(1), arguments, **changes)


def _outputs(model, annotations, tokens):
    """Return outputs in training; with hard attention for given noise."""
    if model.hard_attention is None:
        x = {"annotations": annotations, "tokens": tokens}
        return model(x, training=True)
    noise = hard_model.location_noise(np.random.default_rng(3), 3, sampled=SAMPLED)
    return hard_model.outputs_of(model, annotations, tokens, noise, training=True)


def _gradient_function(model, mode):
    """Return a function of a batch -> outputs, loss, gradients of weights and a."""

    def run(annotations, tokens, targets):
        with tf.GradientTape() as tape:
            tape.watch(annotations)
            outputs = _outputs(model, annotations, tokens)
            loss = model.compute_loss(y=targets, y_pred=outputs)
            # a cotangent of beta too, which the paper's loss does not have
            loss = loss + tf.reduce_sum(outputs["beta"] ** 2)
        inputs = [*(v.value for v in model.trainable_variables), annotations]
        zero = tf.UnconnectedGradients.ZERO
        found = tape.gradient(loss, inputs, unconnected_gradients=zero)
        gradients = [tf.convert_to_tensor(g) for g in found]
        return outputs, loss, gradients

    if mode == "eager":
        return run
    return tf.function(run, autograph=False, jit_compile=mode == "xla")


def _run(model, annotations, tokens, targets, mode, length=T):
    run = _gradient_function(model, mode)
    tokens, targets = tokens[:, :length], targets[:, :length]
    return arrays(run(tf.constant(annotations, tf.float32), tokens, targets))


def _batch(lengths=(1, 0, 4)):
    rng = np.random.default_rng(2)
    return (photos(rng), *captions(rng, lengths))


@functools.cache
def _by_autodiff(kind):
    """Return the outputs, loss and gradients of autodiff, without compilation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LstmDecoder, "unroll", _unroll_by_autodiff)
        return _run(_model(KINDS[kind]), *_batch(), "eager")


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("tanh", "eager"),
        pytest.param("tanh", "xla", marks=pytest.mark.slow),
        pytest.param("no gate", "xla", marks=pytest.mark.slow),
        ("hard", "eager"),
        ("mean", "eager"),
        *nightly(
            ("none", "eager"), ("tanh", "graph"), ("hard", "xla"), ("none", "xla")
        ),
    ],
)
def test_outputs_and_gradients_are_those_of_autodiff(kind, mode):
    found = _run(_model(KINDS[kind]), *_batch(), mode)
    expected = _by_autodiff(kind)
    for one, other in zip(*map(keras.tree.flatten, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, **TOLERANCE)


@pytest.mark.parametrize("attention", ["mean", "none"])
def test_without_attention_autodiff_gives_every_weight_a_gradient(attention):
    model = build(np.random.default_rng(1), attention=attention, fast_gradient=False)
    annotations, tokens, targets = _batch()
    with tf.GradientTape() as tape:
        outputs = _outputs(model, annotations, tokens)
        loss = model.compute_loss(y=targets, y_pred=outputs)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, [v.value for v in variables])
    # One without a gradient ends the training: the optimiser takes its norm.
    assert [
        v.name for v, g in zip(variables, gradients, strict=True) if g is None
    ] == []


@pytest.mark.parametrize("mode", ["eager", *nightly("xla")])
def test_large_scores_of_attention_stay_finite(mode):
    model = build(np.random.default_rng(1))
    annotations, tokens, targets = _batch((4, 2, 3))
    annotations = tf.constant(annotations, tf.float32)
    run, decoder = _gradient_function(model, mode), model.decoder
    for size in (20.0, 60.0, 1e4):
        decoder.w_h.assign(size * np.sign(decoder.w_h))
        decoder.w_a[0].assign(size * np.sign(decoder.w_a[0]))
        for value in keras.tree.flatten(arrays(run(annotations, tokens, targets))):
            assert np.isfinite(value).all(), size


@pytest.mark.parametrize(
    ("kind", "xla"), nightly(("tanh", False), ("tanh", True), ("hard", True))
)
def test_compiled_parts_multiply_in_bfloat16_and_change_little_else(kind, xla):
    model, parts = _model(KINDS[kind]), []

    def compile_fn(function):
        parts.append(function.__name__)
        return tf.function(function, autograph=False, jit_compile=xla)

    found = []
    for precision in ("float32", "bfloat16"):
        if precision == "bfloat16":
            model.compile_parts(compile_fn, precision)
            if kind == "hard":
                model.hard_attention.baseline.assign(0)
        found.append(_run(model, *_batch((4, 2, 3)), "graph"))
    (outputs, loss, gradients), (rounded, rounded_loss, rounded_gradients) = found
    assert parts == PARTS
    assert rounded_loss != loss
    np.testing.assert_allclose(rounded_loss, loss, rtol=2e-2)
    for name, values in outputs.items():
        np.testing.assert_allclose(rounded[name], values, atol=0.1, err_msg=name)
    for ours, theirs in zip(rounded_gradients, gradients, strict=True):
        assert _cosine(ours, theirs) > 0.99 or not np.any(theirs)


def _cosine(one, other):
    product = np.vdot(one, other)
    return product / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-12)


def test_compiled_parts_are_used_in_training_only(rng):
    model = build(rng)
    x = {"annotations": photos(rng), "tokens": captions(rng)[0]}
    before = arrays(model(x))
    model.compile_parts(lambda function: lambda *args: pytest.fail("not in training"))
    assert_equal_leaves(before, arrays(model(x)))


@pytest.mark.nightly
def test_compile_parts_follows_its_last_arguments_and_compiles_once_for_equal_ones():
    model, calls = build(np.random.default_rng(1)), []

    def compile_fn(name):
        def compile_part(function):
            calls.append((name, function.__name__))
            return function

        return compile_part

    first, second = compile_fn("first"), compile_fn("second")
    model.compile_parts(first)
    model.compile_parts(first, "bfloat16")
    assert model.compiled_parts.precision == "bfloat16"
    for length in (T, T - 1):
        _run(model, *_batch(), "graph", length)
    model.compile_parts(first)
    _run(model, *_batch(), "graph")
    assert calls == [("first", name) for name in PARTS]
    model.compile_parts(second)
    _run(model, *_batch(), "graph")
    assert calls[len(PARTS) :] == [("second", name) for name in PARTS]
