"""The optimisers against NumPy, their schedules and their average of weights."""

import keras
import numpy as np
import pytest
from tiny_run import experiment

from show_attend_tell.training.optimizer import bounded, learning_rate, make_optimizer

START = [np.array([1.0, -2.0]), np.array([[0.5], [4.0]])]
GRADIENTS = [[[3.0, 0.0], [[0.0], [4.0]]], [[1.0, -2.0], [[2.0], [0.5]]]]


def settings(**changes):
    plain = {"optimizer": "adam", "learning_rate": 0.1}
    return experiment(training={**plain, **changes}).training


def take_steps(optimizer, count=2):
    """Apply the gradients in turn; return the weights after each step."""
    variables = [keras.Variable(value.astype(np.float32)) for value in START]
    history = []
    for k in range(count):
        gradients = [np.asarray(g, np.float32) for g in GRADIENTS[k % 2]]
        optimizer.apply(list(map(keras.ops.convert_to_tensor, gradients)), variables)
        history.append([np.array(v) for v in variables])
    return history


def expect(history, step):
    """Compare a history with ``step(w, g, memory, t)`` of each weight."""
    for j, start in enumerate(START):
        w, memory = start.copy(), {}
        for t, weights in enumerate(history, start=1):
            w = step(w, np.asarray(GRADIENTS[(t - 1) % 2][j]), memory, t)
            np.testing.assert_allclose(weights[j], w, rtol=1e-4, atol=1e-6)


def adam(rate=lambda t: 0.1, decay=0.0, scale=lambda t: 1.0):
    def step(w, g, memory, t):
        g = g * scale(t)
        memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
        memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * g**2
        m, v = memory["m"] / (1 - 0.9**t), memory["v"] / (1 - 0.999**t)
        return w - rate(t) * (decay * w + m / (np.sqrt(v) + 1e-7))

    return step


def rmsprop(rate):
    def step(w, g, memory, t):
        memory["v"] = 0.95 * memory.get("v", 0) + 0.05 * g**2
        update = rate * g / np.sqrt(memory["v"] + 1e-7)
        memory["m"] = 0.9 * memory.get("m", 0) + update
        return w - memory["m"]

    return step


def trained_weights(optimizer, last):
    """Return the weights that a validation reads, given the last ones."""
    weights = [keras.Variable(value) for value in last]
    optimizer.finalize_variable_values(weights)
    return [np.array(weight) for weight in weights]


LAST = np.eye(7)[6]
DEBIASED = {d: np.append(0, d ** np.arange(6.0)[::-1]) for d in (0.5, 0.9, 0.9999)}
DEBIASED = {d: shares / shares.sum() for d, shares in DEBIASED.items()}
BIASED = np.append(0.9**6, 0.1 * 0.9 ** np.arange(6)[::-1])
INITIAL = 0.3 * np.eye(7)[0]


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        *(({"average_decay": d}, shares) for d, shares in DEBIASED.items()),
        ({"average_decay": 0.9, "init_from": "another"}, BIASED),
        ({"initial_share": 0.3, "init_from": "another"}, INITIAL + 0.7 * LAST),
        (
            {"average_decay": 0.9, "initial_share": 0.3, "init_from": "another"},
            INITIAL + 0.7 * DEBIASED[0.9],
        ),
    ],
)
def test_trained_weights_are_shares_of_the_weights_after_each_update(changes, shares):
    optimizer = make_optimizer(settings(**changes), 10)
    history = [START, *take_steps(optimizer, 6)]
    assert shares.sum() == pytest.approx(1)
    for j, trained in enumerate(trained_weights(optimizer, history[-1])):
        weights = np.array([step[j] for step in history], np.float64)
        expected = np.tensordot(shares, weights, 1)
        np.testing.assert_allclose(trained, expected, rtol=1e-5, atol=1e-6)


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


@pytest.mark.parametrize(
    ("total", "changes", "warmup", "decay"),
    [
        (2814, {}, 200, 0.993),
        (64, {}, 12, 0.9219),
        (4, {}, 0, 0.01),
        (64, {"init_from": "another"}, 12, 0.993),
        (64, {"average_decay": 0.0}, 12, 0.0),
        (64, {"average_decay": 0.5, "warmup_steps": 0}, 0, 0.5),
        # Rounded up it would be 1, an average that never changes.
        (150_000, {"average_decay": 0.99999}, 200, 0.9999),
    ],
)
def test_a_short_training_bounds_warmup_and_average(
    total, changes, warmup, decay, caplog
):
    chosen = settings(**{"warmup_steps": 200, "average_decay": 0.993, **changes})
    with caplog.at_level("INFO", logger="show_attend_tell"):
        found = bounded(chosen, total)
    assert (found.warmup_steps, found.average_decay) == (warmup, decay)
    assert (found == chosen) == (not caplog.records)


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


NORMS = [np.sqrt(sum(np.sum(np.square(g)) for g in step)) for step in GRADIENTS]
CASES = {
    "adam": ({}, adam()),
    "rmsprop": ({"optimizer": "rmsprop"}, rmsprop(0.1)),
    "adamw": ({"optimizer": "adamw", "weight_decay": 0.2}, adam(decay=0.2)),
    "clipped": ({"clip_norm": 1.0}, adam(scale=lambda t: 1 / NORMS[(t - 1) % 2])),
    "cosine": (
        {"schedule": "cosine"},
        adam(rate=lambda t: 0.05 * (1 + np.cos(np.pi * (t - 1) / 10))),
    ),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_each_optimiser_matches_its_equations_and_records_the_norm(name, compiled):
    changes, equations = CASES[name]
    optimizer = make_optimizer(settings(**changes), 10)
    if compiled:
        tf = pytest.importorskip("tensorflow")
        optimizer.compile_apply(lambda f: tf.function(f, jit_compile=True))
    expect(take_steps(optimizer, 4), equations)
    assert float(optimizer.gradient_norm) == pytest.approx(NORMS[1], rel=1e-6)
