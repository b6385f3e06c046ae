"""REINFORCE's gradient of the policy, against the enumeration of every path of places.

With the weights of the place in the glimpse network at 0 the model depends on a place
through the integer corner of the patch alone. A corner m of a sample N(mu, sigma^2) has
the probability Phi((m + 1 - a) / s) - Phi((m - a) / s) along an axis, where a and s are
mean and deviation in pixels, and the first and last corner also have the tails, which
clipping moves into the picture. So J = E[R] is a finite sum over paths, and can be
differentiated without sampling.
"""

import itertools
import math

import numpy as np
import pytest
import tiny_ram as tiny
from keras import ops

from show_attend_tell.siblings.digits.ram.model import PlaceNoise

SIDE, PATCH, T, CLASSES = 4, 2, 3, 3
CORNERS = np.arange(-1, 4)  # of a 2 x 2 patch on 4 pixels, for places in [-1, 1]
SIGMA = 0.5
ROWS, REPEATS = 1000, 150
CHANGES = {"patch": PATCH, "scales": 1, "glimpses": T, "deviation": SIGMA}
CHANGES |= {"first": "centre"}


def build(**changes):
    """Return a model that does not see coordinates, and a picture.

    Its mean logits are 0, so that its class depends on the places.
    """
    rng = np.random.default_rng(2)
    model = tiny.build(rng, SIDE, CLASSES, 0.8, **CHANGES, **changes)
    model.see_where.kernel.assign(np.zeros(model.see_where.kernel.shape))
    model.see_where.bias.assign(np.zeros(model.see_where.bias.shape))
    picture = rng.uniform(0, 3, (1, SIDE, SIDE)).astype("float32")
    steps = rng.uniform(-1, 1, (500, T, 2)).astype("float32")
    noise = PlaceNoise(*map(ops.convert_to_tensor, (steps[:, 0], steps)))
    logits = model.look(np.repeat(picture, 500, axis=0), noise, True)["logits"]
    model.act.bias.assign(model.act.bias - ops.mean(logits, axis=0))
    return model, picture


def centre_of(corner):
    """Return the coordinate whose patch begins at a corner, in its middle."""
    return (corner + PATCH / 2) / (SIDE / 2) - 1


def corner_probabilities(mean):
    """Return P(corner) along one axis for means (N,): (N, 5), differentiable."""
    scale = SIDE / 2
    a = ops.expand_dims((mean + 1) * scale - PATCH / 2 + 0.5, -1)  # (N, 1)
    bounds = ops.convert_to_tensor(CORNERS[1:].astype("float32"))
    z = (bounds - ops.cast(a, "float32")) / (SIGMA * scale * math.sqrt(2))
    below = 0.5 * (1 + ops.erf(z))  # (N, 4): P(corner < m)
    zeros = ops.zeros_like(below[:, :1])
    edges = ops.concatenate([zeros, below, zeros + 1], axis=1)  # (N, 6)
    return edges[:, 1:] - edges[:, :-1]


PATHS = list(itertools.product(itertools.product(CORNERS, repeat=2), repeat=T - 1))


def enumerated(model, picture, label):
    """Return J and dJ/dW by weight: every path, its probability and its reward."""
    places = np.array([[[centre_of(m) for m in step] for step in p] for p in PATHS])
    places = np.concatenate([np.zeros((len(PATHS), 1, 2)), places], axis=1)
    images = np.repeat(picture, len(PATHS), axis=0)
    index = np.array(PATHS) - CORNERS[0]  # (paths, T - 1, 2)
    noise = PlaceNoise(
        ops.zeros((len(PATHS), 2)), ops.convert_to_tensor(places.astype("float32"))
    )
    one_hot = ops.convert_to_tensor(np.eye(5, dtype="float32")[index])

    def value():
        state = model._start(images)
        probability = ops.ones((len(PATHS),))
        for t in range(T):
            if t:
                mean, _, _ = model._sample_place(state[0], ops.zeros((len(PATHS), 2)))
                for axis in range(2):
                    of_corners = corner_probabilities(mean[:, axis])  # (paths, 5)
                    chosen = ops.sum(of_corners * one_hot[:, t - 1, axis], axis=-1)
                    probability = probability * chosen
            state = model._step(state, model._glimpse(images, noise.steps[:, t]))
        right = ops.argmax(model.act(state[0]), axis=-1) == label
        return ops.sum(probability * ops.cast(right, "float32"))

    value_now = float(value())
    return value_now, flat(tiny.gradients(model, value))


def flat(gradients):
    """Return the gradient of f_l alone, as one vector."""
    chosen = sorted(name for name in gradients if name.startswith("locate"))
    return np.concatenate([np.ravel(gradients[name]) for name in chosen])


def estimates(model, picture, label):
    """Return REPEATS estimates of dJ/dW, each the mean over ROWS runs."""
    samples = model.settings.samples
    images = ops.convert_to_tensor(np.repeat(picture, ROWS, axis=0))
    labels = ops.convert_to_tensor(np.full(ROWS, label, "int32"))
    assert ROWS % samples == 0

    def value(first, steps):
        outputs = model.look(images, PlaceNoise(first, steps))
        return -ops.mean(model.loss_terms(labels, outputs)["reinforce"]), 0.0

    compute = tiny.gradient_function(value, model, "jit", key="path")
    rng, found = np.random.default_rng(11), []
    first = ops.zeros((ROWS, 2))
    for _ in range(REPEATS):
        steps = rng.standard_normal((ROWS, T, 2), np.float32)
        gradients = compute(first, ops.convert_to_tensor(steps))[0]
        found.append(flat({tiny.short(path): g for path, g in gradients.items()}))
    return np.array(found)


@pytest.fixture(scope="module")
def exact():
    """The class of the most uncertain reward, this reward, and its gradient."""
    model, picture = build()
    rewards = [enumerated(model, picture, k)[0] for k in range(CLASSES)]
    assert sum(rewards) == pytest.approx(1, abs=1e-5)
    label = int(np.argmin(np.abs(np.array(rewards) - 0.5)))
    assert 0.1 < rewards[label] < 0.9
    return label, rewards[label], enumerated(model, picture, label)[1]


def variance_of_estimates(exact, **changes):
    """Return the variance of unbiased estimates."""
    label, _, expected = exact
    model, picture = build(**changes)
    found = estimates(model, picture, label)
    error = found.std(0, ddof=1) / np.sqrt(REPEATS)
    assert np.abs(expected).max() > 0.01
    assert np.all(np.abs(found.mean(0) - expected) <= 4 * error + 1e-6)
    # The estimate is exact enough to distinguish the gradient from 0.
    assert np.linalg.norm(error) < 0.3 * np.linalg.norm(expected)
    return found.var(0).sum()


@pytest.fixture(scope="module")
def without_baseline(exact):
    return variance_of_estimates(exact, baseline="moving")


@pytest.mark.nightly
def test_the_gradient_is_the_enumerated_one_and_a_baseline_lowers_its_variance(
    exact, without_baseline
):
    others = variance_of_estimates(exact, baseline="samples", samples=4)
    assert others < without_baseline


@pytest.mark.slow
def test_the_gradient_with_a_learned_baseline_is_the_enumerated_one(exact):
    variance_of_estimates(exact, baseline="learned")  # of random values here
