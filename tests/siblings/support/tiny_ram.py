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
    """Return pictures, labels and noise of normal samples, as tensors."""
    noise = PlaceNoise(
        ops.convert_to_tensor(rng.uniform(-1, 1, (rows, 2)).astype("float32")),
        ops.convert_to_tensor(
            rng.standard_normal((rows, glimpses, 2)).astype("float32")
        ),
    )
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


def retina(image, place, s, reach):
    """Return the patches of one picture, pixel by pixel; (k g g,)."""
    (H, W), patches = image.shape, []
    for i in range(s.scales):
        width, pixels = s.patch * 2**i, 2**i
        left, top = (
            math.floor(side / 2 + p * reach - width / 2 + 0.5)
            for side, p in zip((W, H), place, strict=True)
        )
        patch = np.zeros((s.patch, s.patch))
        for row in range(width):
            for column in range(width):
                y, x = top + row, left + column
                if 0 <= y < H and 0 <= x < W:
                    patch[row // pixels, column // pixels] += image[y, x] / pixels**2
        patches.append(patch)
    return np.ravel(patches)


def run(model, image, first, steps, at_random=False):
    """Return the outputs of :meth:`RecurrentAttention.look` for one picture."""
    s, W = model.settings, layers(model)

    def dense(name, x):
        return x @ W[name][0] + W[name][1]

    h = c = np.zeros(s.width)
    names = ("locations", "means", "log_probs", "baselines", "step_logits")
    out = {key: [] for key in names}
    for t in range(s.glimpses):
        place = steps[t] if at_random and t else first
        if t == 0 and s.first == "centre":
            place = np.zeros(2)
        if not at_random and (t or s.first == "learned"):
            hidden = relu(dense("locate_hidden", h)) if s.location_width else h
            mean = np.tanh(dense("locate", hidden))
            place = mean + s.deviation * steps[t]
            density = np.exp(-((place - mean) ** 2) / (2 * s.deviation**2))
            density /= s.deviation * np.sqrt(2 * np.pi)
            out["means"].append(mean)
            out["log_probs"].append(np.log(density).sum())
            out["baselines"].append(dense("expect", h)[0])
        place = np.clip(place, -1, 1)
        out["locations"].append(place)
        what = relu(dense("see_what", retina(image, place, s, model.reach)))
        where = relu(dense("see_where", place))
        g = relu(dense("join_what", what) + dense("join_where", where))
        gates = dense("from_state", h) + dense("from_glimpse", g)
        h, c = lstm_update(gates, c) if s.core == "lstm" else (relu(gates), c)
        out["step_logits"].append(dense("act", h))
    return {"logits": dense("act", h), **{k: np.array(v) for k, v in out.items() if v}}
