"""A small model of glimpses, and its equations in NumPy for one picture at a time."""

import math

import numpy as np
from keras import ops
from oracle import lstm_update
from random_weights import randomised
from tiny_captioner import gradient_function
from tiny_draw import short

from show_attend_tell.siblings.digits.ram.model import PlaceNoise, RecurrentAttention
from show_attend_tell.siblings.digits.settings import GlimpseSettings

B, H, T, CLASSES = 4, 12, 3, 5
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
WIDTHS = {"width": 6, "glimpse_width": 5, "location_width": 4}


def settings(**changes):
    """Return settings of small widths."""
    given = {"patch": 3, "scales": 2, "glimpses": T, "deviation": 0.3, **WIDTHS}
    return GlimpseSettings(**{**given, **changes})


def build(rng, canvas=H, classes=CLASSES, spread=0.4, **changes):
    """Return a model whose every weight, biases too, is random."""
    model = RecurrentAttention(settings(**changes), canvas, classes)
    return randomised(model, rng, spread)


def batch(rng, rows=B, canvas=H, glimpses=T):
    """Return pictures, labels and the noise of samples, as tensors."""
    drawn = PlaceNoise(
        rng.uniform(-1, 1, (rows, 2)),
        rng.standard_normal((rows, glimpses, 2)),
        rng.standard_normal((rows, glimpses)),
        rng.uniform(0, 1, (rows, glimpses)),
    )
    noise = PlaceNoise(*(ops.convert_to_tensor(x.astype("float32")) for x in drawn))
    images = ops.convert_to_tensor(rng.random((rows, canvas, canvas), np.float32))
    return images, rng.integers(0, CLASSES, rows).astype("int32"), noise


def gradients(model, function):
    """Return d function() / dW by the weight's layer and name."""
    compute = gradient_function(lambda: (function(), 0.0), model, key="path")
    return {short(path): g for path, g in compute()[0].items()}


def layers(model):
    """Return layer -> (kernel, bias) in float64."""
    return {
        layer.name: tuple(np.asarray(w, np.float64) for w in layer.weights)
        for layer in model.layers
    }


def relu(x):
    return np.maximum(x, 0)


def retina(image, place, s, reach, zoom=1.0):
    """Return the patches of one picture, cell by cell; (k g g,).

    A cell is the integral of the picture, where a pixel is a square, over its area.
    """
    patches = []
    for i in range(s.scales):
        side = 2**i * zoom  # of a cell
        left, top = (
            math.floor(size / 2 + p * reach - s.patch * side / 2 + 0.5)
            for size, p in zip(image.shape[::-1], place, strict=True)
        )
        patch = np.zeros((s.patch, s.patch))
        for row in range(s.patch):
            for column in range(s.patch):
                first, last = top + row * side, top + (row + 1) * side
                down = range(math.floor(first), math.ceil(last))
                near, far = left + column * side, left + (column + 1) * side
                across = range(math.floor(near), math.ceil(far))
                for y in down:
                    for x in across:
                        if 0 <= y < image.shape[0] and 0 <= x < image.shape[1]:
                            height = min(last, y + 1) - max(first, y)
                            width = min(far, x + 1) - max(near, x)
                            patch[row, column] += image[y, x] * height * width
        patches.append(patch / side**2)
    return np.ravel(patches)


def log_normal(x, mean, sigma):
    """Return the log density of N(mean, sigma^2 I) at x."""
    density = np.exp(-((x - mean) ** 2) / (2 * sigma**2))
    return np.log(density / (sigma * np.sqrt(2 * np.pi))).sum()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def run(model, image, noise, at_random=False, decisions=None):
    """Return the outputs of :meth:`RecurrentAttention.look` for one picture.

    After it has stopped the loop goes on, as the model's does. What the policy drew is
    added to the list ``decisions``.
    """
    s, W = model.settings, layers(model)

    def dense(name, x):
        return x @ W[name][0] + W[name][1]

    def head(name, h):
        hidden = relu(dense(f"{name}_hidden", h)) if s.location_width else h
        return dense(name, hidden)

    first, steps, zoom_noise, stop_noise = (np.asarray(x, np.float64) for x in noise)
    h = c = np.zeros(s.width)
    names = ["locations", "means", "log_probs", "baselines", "step_logits"]
    names += ["zooms"] * (s.zoom == "learned")
    names += ["made", "stop_logits"] * (s.stop == "learned")
    out = {key: [] for key in names}
    taken = None  # glimpses until it stopped
    for t in range(s.glimpses):
        place = steps[t] if at_random and t else first
        v = 0.0
        if t == 0 and s.first == "centre":
            place = np.zeros(2)
        policy, flag, drawn = [], 0, {}
        if t or s.first == "learned":
            if t and s.stop == "learned":
                z = head("stop", h)[0]
                p = sigmoid(z)
                out["stop_logits"].append(z)
                flag = int(stop_noise[t] < p)
                policy.append(np.log(p if flag else 1 - p))
                drawn |= {"stop": p, "flag": flag}
            if not at_random:
                mean = np.tanh(head("locate", h))
                place = mean + s.deviation * steps[t]
                out["means"].append(mean)
                if not flag:
                    policy.append(log_normal(place, mean, s.deviation))
            if s.zoom == "learned":
                mean = np.tanh(head("zoom", h))[0]
                v = mean + s.zoom_deviation * zoom_noise[t]
                drawn |= {"zoom_mean": mean, "v": v}
                if not flag:
                    policy.append(log_normal(v, mean, s.zoom_deviation))
        if decisions is not None and policy:
            decisions.append(drawn)
        if policy:
            out["log_probs"].append(sum(policy))
            out["baselines"].append(dense("expect", h)[0])
            if s.stop == "learned":
                out["made"].append(float(taken is None))
        if flag and taken is None:
            taken = t
        place = np.clip(place, -1, 1)
        out["locations"].append(place)
        zoom = s.zoom_limit ** np.clip(v, -1, 1) if s.zoom == "learned" else 1.0
        what = relu(dense("see_what", retina(image, place, s, model.reach, zoom)))
        where = relu(dense("see_where", place))
        g = dense("join_what", what) + dense("join_where", where)
        if s.zoom == "learned":
            out["zooms"].append(zoom)
            g = g + dense("join_zoom", np.array([np.clip(v, -1, 1)]))
        gates = dense("from_state", h) + dense("from_glimpse", relu(g))
        h, c = lstm_update(gates, c) if s.core == "lstm" else (relu(gates), c)
        out["step_logits"].append(dense("act", h))
    outputs = {k: np.array(v) for k, v in out.items() if v}
    outputs["logits"] = out["step_logits"][-1]
    if s.stop == "learned":
        taken = taken or s.glimpses
        outputs["logits"] = out["step_logits"][taken - 1]
        outputs["glimpses"] = taken
    return outputs
