"""The optimisers against NumPy, their schedules and their average of weights."""

import functools

import keras
import numpy as np
import pytest
from tiny_run import experiment

from show_attend_tell.training.optimizer import learning_rate, make_optimizer

START = [np.array([1.0, -2.0]), np.array([[0.5], [4.0]])]
GRADIENTS = [[[3.0, 0.0], [[0.0], [4.0]]], [[1.0, -2.0], [[2.0], [0.5]]]]


def settings(**changes):
    plain = {"optimizer": "adam", "learning_rate": 0.1}
    return experiment(training={**plain, **changes}).training


def start_variables():
    return [keras.Variable(value.astype(np.float32)) for value in START]


def take_steps(optimizer, count=2, variables=None):
    """Apply the gradients in turn; return the weights after each step."""
    variables, history = variables or start_variables(), []
    for k in range(count):
        gradients = [np.asarray(g, np.float32) for g in GRADIENTS[k % 2]]
        optimizer.apply(list(map(keras.ops.convert_to_tensor, gradients)), variables)
        history.append([np.array(v) for v in variables])
    return history


def expect(history, *steps):
    """Compare a history with ``step(w, g, memory, t)`` of all weights or of each."""
    steps = steps if len(steps) == len(START) else steps * len(START)
    for j, (start, step) in enumerate(zip(START, steps, strict=True)):
        w, memory = start.copy(), {}
        for t, weights in enumerate(history, start=1):
            w = step(w, np.asarray(GRADIENTS[(t - 1) % 2][j]), memory, t)
            np.testing.assert_allclose(weights[j], w, rtol=1e-4, atol=1e-6)


def adam(rate=0.1, decay=0.0, scale=lambda t: 1.0):
    def step(w, g, memory, t):
        g = g * scale(t)
        memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
        memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * g**2
        m, v = memory["m"] / (1 - 0.9**t), memory["v"] / (1 - 0.999**t)
        return w - rate * decay * w - rate * m / (np.sqrt(v) + 1e-7)

    return step


def rmsprop(rate):
    def step(w, g, memory, t):
        memory["v"] = 0.95 * memory.get("v", 0) + 0.05 * g**2
        update = rate * g / np.sqrt(memory["v"] + 1e-7)
        memory["m"] = 0.9 * memory.get("m", 0) + update
        return w - memory["m"]

    return step


def compile_with_xla(optimizer):
    tf = pytest.importorskip("tensorflow")
    optimizer.compile_apply(lambda f: tf.function(f, jit_compile=True))


def test_the_gradient_is_clipped_by_its_global_norm_and_the_norm_before_is_recorded():
    optimizer = make_optimizer(settings(clip_norm=1.0), 10)
    norms = [np.sqrt(sum(np.sum(np.square(g)) for g in step)) for step in GRADIENTS]
    history = take_steps(optimizer, 2)
    assert float(optimizer.gradient_norm) == pytest.approx(norms[1], rel=1e-6)
    expect(history, adam(scale=lambda t: 1 / norms[t - 1]))


def averages_of(optimizer):
    """Return the averages as a validation reads them."""
    averages = [keras.Variable(np.zeros_like(value, np.float32)) for value in START]
    optimizer.finalize_variable_values(averages)
    return [np.array(average) for average in averages]


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.998, 0.9999])
def test_the_average_of_weights_is_debiased(decay):
    optimizer = make_optimizer(settings(average_decay=decay), 10)
    history = take_steps(optimizer, 6)
    shares = (1 - decay) * decay ** np.arange(6)[::-1] / (1 - decay**6)
    assert shares.sum() == pytest.approx(1)
    for j, average in enumerate(averages_of(optimizer)):
        weights = np.array([step[j] for step in history], np.float64)
        np.testing.assert_allclose(
            average, np.tensordot(shares, weights, 1), rtol=1e-5, atol=1e-6
        )


def test_with_a_model_to_start_from_the_average_starts_at_its_weights():
    chosen = settings(average_decay=0.9, init_from="another")
    optimizer = make_optimizer(chosen, 10)
    history = take_steps(optimizer, 4)
    for j, average in enumerate(averages_of(optimizer)):
        expected = START[j]
        for weights in history:
            expected = 0.9 * expected + 0.1 * weights[j]
        np.testing.assert_allclose(average, expected, rtol=1e-5)


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_the_initial_weights_have_their_share_in_the_trained_model(decay):
    chosen = settings(average_decay=decay, initial_share=0.3, init_from="another")
    optimizer = make_optimizer(chosen, 10)
    history = take_steps(optimizer, 4)
    last = [keras.Variable(weights) for weights in history[-1]]
    optimizer.finalize_variable_values(last)
    shares = decay ** np.arange(4)[::-1]  # 0^0 = 1: without a decay the last weights
    for j, trained in enumerate(last):
        weights = np.array([step[j] for step in history], np.float64)
        average = np.tensordot(shares / shares.sum(), weights, 1)
        expected = 0.3 * START[j] + 0.7 * average
        np.testing.assert_allclose(trained, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["rmsprop", "adam", "adamw"])
def test_the_average_is_the_same_compiled(name):
    found = []
    for compiled in (False, True):
        chosen = settings(average_decay=0.998, optimizer=name)
        optimizer = make_optimizer(chosen, 10)
        if compiled:
            compile_with_xla(optimizer)
        take_steps(optimizer, 3)
        found.append(averages_of(optimizer))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "kind"), [("rmsprop", "RMSprop"), ("adam", "Adam"), ("adamw", "AdamW")]
)
def test_the_variables_are_those_of_keras_and_the_norm(name, kind):
    chosen = settings(optimizer=name, average_decay=0.9)
    ours = make_optimizer(chosen, 10)
    take_steps(ours, 1)
    options = {"momentum": 0.9} if name == "rmsprop" else {}
    theirs = getattr(keras.optimizers, kind)(use_ema=True, **options)
    theirs.build([keras.Variable(value) for value in START])
    names, keras_names = (
        [v.name.rpartition("_")[2] for v in optimizer.variables]
        for optimizer in (ours, theirs)
    )
    assert names == [*keras_names, "norm"]
    assert names[2:4] == ["average"] * 2


@pytest.mark.parametrize(
    ("changes", "steps", "expected"),
    [
        ({}, (0, 50), [0.1, 0.1]),
        ({"warmup_steps": 10}, (0, 5, 10, 50), [0, 0.05, 0.1, 0.1]),
        (
            {"schedule": "cosine"},
            (0, 25, 50, 75, 100, 120),
            0.05 * (1 + np.cos(np.pi * np.array([0, 1, 2, 3, 4, 4]) / 4)),
        ),
        (
            {"schedule": "cosine", "warmup_steps": 20},
            (0, 5, 20, 60, 100),
            [0, 0.025, 0.1, 0.05, 0],
        ),
    ],
)
def test_rates_warm_up_and_fall_along_the_cosine(changes, steps, expected):
    rate = learning_rate(settings(**changes), 100)
    found = [float(rate(step)) if callable(rate) else rate for step in steps]
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_a_gradient_of_slices_is_compiled_as_a_tensor():
    tf = pytest.importorskip("tensorflow")
    parts = [[1.0], [2.0], [4.0]], [2, 0, 2], [3, 1]
    rows = tf.IndexedSlices(*map(tf.constant, parts))
    seen, optimizer = [], make_optimizer(settings(optimizer="rmsprop"), 10)
    optimizer.compile_apply(lambda function: seen.extend)
    optimizer.apply([rows], [keras.Variable(np.zeros((3, 1), np.float32))])
    assert tf.is_tensor(seen[0])
    assert not isinstance(seen[0], tf.IndexedSlices)
    np.testing.assert_array_equal(seen[0], [[2], [0], [5]])


OWN = {"learning_rate": 0.1, "encoder_learning_rate": 0.004}
CASES = {
    "adam": ({}, adam),
    "rmsprop": ({}, rmsprop),
    "adamw": ({"weight_decay": 0.2}, functools.partial(adam, decay=0.2)),
}


def with_encoder(**changes):
    """Return two variables and an optimiser; the second one is the encoder's."""
    variables = start_variables()
    return make_optimizer(settings(**OWN, **changes), 10, variables[1:]), variables


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_each_optimiser_matches_its_equations_with_the_encoders_own_rate(
    name, compiled
):
    changes, equations = CASES[name]
    optimizer, variables = with_encoder(optimizer=name, **changes)
    if compiled:
        compile_with_xla(optimizer)
    history = take_steps(optimizer, 4, variables)
    expect(history, equations(0.1), equations(0.004))


@pytest.mark.parametrize("name", CASES)
def test_each_optimiser_matches_its_equations(name):
    changes, equations = CASES[name]
    optimizer = make_optimizer(settings(optimizer=name, **changes), 10)
    expect(take_steps(optimizer, 4), equations(0.1))
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in GRADIENTS[1]))
    assert float(optimizer.gradient_norm) == pytest.approx(norm, rel=1e-6)


def test_both_rates_follow_the_schedule():
    def cosine(rate):
        plain = adam(1.0)

        def step(w, g, memory, t):
            move = w - plain(w, g, memory, t)
            return w - rate * 0.5 * (1 + np.cos(np.pi * (t - 1) / 10)) * move

        return step

    optimizer, variables = with_encoder(schedule="cosine")
    history = take_steps(optimizer, 4, variables)
    expect(history, cosine(0.1), cosine(0.004))


def test_the_average_covers_the_encoders_variables():
    optimizer, variables = with_encoder(average_decay=0.5)
    first, last = take_steps(optimizer, 2, variables)
    for average, w1, w2 in zip(averages_of(optimizer), first, last, strict=True):
        np.testing.assert_allclose(average, w1 / 3 + w2 * 2 / 3, rtol=1e-5)
