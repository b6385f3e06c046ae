"""A learning rate of their own for some variables, against NumPy."""

import keras
import numpy as np
import pytest
from test_optimizer import GRADIENTS, START, adam, settings

from show_attend_tell.training.optimizer import make_optimizer


def take_steps(optimizer_settings, count=4, compiled=False):
    """Train two variables, of which the second is the encoder's; return them."""
    variables = [keras.Variable(value.astype(np.float32)) for value in START]
    optimizer = make_optimizer(optimizer_settings, 10, variables[1:])
    if compiled:
        tf = pytest.importorskip("tensorflow")
        optimizer.compile_apply(lambda f: tf.function(f, jit_compile=True))
    for k in range(count):
        gradients = [np.asarray(g, np.float32) for g in GRADIENTS[k % 2]]
        optimizer.apply(list(map(keras.ops.convert_to_tensor, gradients)), variables)
    return optimizer, [np.array(v) for v in variables]


def expected(steps, count=4):
    """Return the variables after the NumPy steps of each."""
    found = []
    for j, (start, step) in enumerate(zip(START, steps, strict=True)):
        w, memory = start.copy(), {}
        for t in range(1, count + 1):
            w = step(w, np.asarray(GRADIENTS[(t - 1) % 2][j]), memory, t)
        found.append(w)
    return found


def rmsprop(rate):
    def step(w, g, memory, t):
        memory["v"] = 0.95 * memory.get("v", 0) + 0.05 * g**2
        update = rate * g / np.sqrt(memory["v"] + 1e-7)
        memory["m"] = 0.9 * memory.get("m", 0) + update
        return w - memory["m"]

    return step


OWN = {"learning_rate": 0.1, "encoder_learning_rate": 0.004}
CASES = {
    "adam": ({"optimizer": "adam"}, [adam(0.1), adam(0.004)]),
    "rmsprop": ({"optimizer": "rmsprop"}, [rmsprop(0.1), rmsprop(0.004)]),
    "adamw": (
        {"optimizer": "adamw", "weight_decay": 0.2},
        [adam(0.1, 0.2), adam(0.004, 0.2)],
    ),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_encoders_variables_have_their_own_rate(name, compiled):
    changes, steps = CASES[name]
    _, found = take_steps(settings(**OWN, **changes), compiled=compiled)
    for ours, theirs in zip(found, expected(steps), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_both_rates_follow_the_schedule():
    def cosine(rate):
        plain = adam(1.0)

        def step(w, g, memory, t):
            move = w - plain(w, g, memory, t)
            return w - rate * 0.5 * (1 + np.cos(np.pi * (t - 1) / 10)) * move

        return step

    _, found = take_steps(settings(**OWN, schedule="cosine"))
    for ours, theirs in zip(found, expected([cosine(0.1), cosine(0.004)]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_the_average_covers_the_encoders_variables():
    optimizer, last = take_steps(settings(**OWN, average_decay=0.5), 2)
    after_one = take_steps(settings(**OWN), 1)[1]
    averages = [keras.Variable(value.astype(np.float32)) for value in START]
    optimizer.finalize_variable_values(averages)
    for average, w1, w2 in zip(averages, after_one, last, strict=True):
        np.testing.assert_allclose(average, w1 / 3 + w2 * 2 / 3, rtol=1e-5)
