"""A small DRAW, and its equations in NumPy (float64) for one picture at a time."""

import numpy as np
from keras import ops
from oracle import lstm_update, sigmoid
from random_weights import randomised

from show_attend_tell.siblings.digits.draw.model import Draw
from show_attend_tell.siblings.digits.settings import DrawSettings

B, H, W, T, Z = 3, 6, 5, 3, 4  # H != W on purpose
TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}


def settings(**changes):
    """Return settings of small widths."""
    given = {"steps": T, "read": 2, "write": 3, "latent": Z, "width": 7}
    return DrawSettings(**{**given, **changes})


def build(rng, height=H, width=W, spread=0.4, **changes):
    """Return a model whose every weight, biases too, is random."""
    return randomised(Draw(settings(**changes), height, width), rng, spread)


def batch(rng, model, rows=B):
    """Return binary pictures and normal noise, float32."""
    images = rng.integers(0, 2, (rows, model.height, model.width)).astype("float32")
    shape = (rows, model.settings.steps, model.settings.latent)
    return images, rng.standard_normal(shape, np.float32)


def short(path):
    """Return the layer and the name of a weight's path."""
    return "/".join(path.split("/")[-2:])


def weights(model):
    """Return layer/name -> float64 array."""
    return {
        short(w.path): np.asarray(ops.convert_to_numpy(w), np.float64)
        for w in model.trainable_weights
    }


def of(p, name):
    """Return the only weight whose path ends in a name, such as ``canvas_0``."""
    (found,) = (value for key, value in p.items() if key.endswith(name))
    return found


def filter_bank(g, delta, variance, N, size):
    """Return F, number by number: Eq. (19), (20), (25) and (26)."""
    F = np.zeros((N, size))
    for i in range(1, N + 1):
        mu = g + (i - N / 2 - 0.5) * delta
        for a in range(1, size + 1):
            F[i - 1, a - 1] = np.exp(-((a - mu) ** 2) / (2 * variance))
        F[i - 1] /= F[i - 1].sum()
    return F


def window(parameters, N, H, W):
    """Return F_Y, F_X and gamma of one window: Eq. (21)-(26)."""
    across, down, log_variance, log_stride, log_intensity = parameters
    delta = (max(H, W) - 1) / (N - 1) * np.exp(log_stride)
    g_x, g_y = (W + 1) / 2 * (across + 1), (H + 1) / 2 * (down + 1)
    F_x = filter_bank(g_x, delta, np.exp(log_variance), N, W)
    return (
        filter_bank(g_y, delta, np.exp(log_variance), N, H),
        F_x,
        np.exp(log_intensity),
    )


def lstm(p, name, v, state, more_gates=0.0):
    h, c = state
    return lstm_update(more_gates + affine(p, name, np.concatenate([v, h])), c)


def affine(p, name, v):
    return v @ p[f"{name}/kernel"] + p[f"{name}/bias"]


def advance(p, s, canvas, decoder, z):
    """Return c_t (H, W), the decoder's state, and the window's parameters."""
    decoder = lstm(p, "decoder", z, decoder)
    patch = affine(p, "to_patch", decoder[0])
    if not s.attention:
        return canvas + patch.reshape(canvas.shape), decoder, None
    parameters = affine(p, "to_write", decoder[0])
    F_y, F_x, gamma = window(parameters, s.write, *canvas.shape)
    written = F_y.T @ patch.reshape(s.write, s.write) @ F_x / gamma
    return canvas + written, decoder, parameters


def run(p, s, x, noise):
    """Return the outputs of :meth:`Draw.draw` for one picture (H, W)."""
    zeros = np.zeros(s.width)
    encoder, decoder = (of(p, "encoder/h_0"), zeros), (of(p, "decoder/h_0"), zeros)
    canvas = of(p, "canvas_0").reshape(x.shape)
    out = {"l_z": [], "log_ratio": [], "canvas": [canvas.ravel()]}
    out |= {"read": [], "write": []} if s.attention else {}
    for eps in noise:
        seen = x, x - sigmoid(canvas)
        if s.attention:
            parameters = affine(p, "to_read", decoder[0])
            F_y, F_x, gamma = window(parameters, s.read, *x.shape)
            seen = [gamma * F_y @ each @ F_x.T for each in seen]
            out["read"].append(parameters)
        v, gates = np.concatenate([*map(np.ravel, seen), decoder[0]]), 0.0
        if not s.attention:  # the product of x is in a weight of its own
            v, gates = v[x.size :], x.ravel() @ of(p, "see_image")
        encoder = lstm(p, "encoder", v, encoder, gates)
        mu = affine(p, "mean", encoder[0])
        sigma = np.exp(affine(p, "log_deviation", encoder[0]))
        z = mu + sigma * eps
        canvas, decoder, parameters = advance(p, s, canvas, decoder, z)
        if s.attention:
            out["write"].append(parameters)
        out["canvas"].append(canvas.ravel())
        out["l_z"].append(0.5 * np.sum(mu**2 + sigma**2 - np.log(sigma**2) - 1))
        q = np.exp(-((z - mu) ** 2) / (2 * sigma**2)) / np.sqrt(2 * np.pi) / sigma
        prior = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        out["log_ratio"].append(np.log(q / prior).sum())
    p_x = sigmoid(canvas)
    out["l_x"] = -np.sum(x * np.log(p_x) + (1 - x) * np.log(1 - p_x))
    return {name: np.array(value) for name, value in out.items()}


def generate(p, s, shape, noise):
    """Return the canvases of :meth:`Draw.generate` for the z of one picture."""
    decoder = (of(p, "decoder/h_0"), np.zeros(s.width))
    canvas = of(p, "canvas_0").reshape(shape)
    found = [canvas.ravel()]
    for z in noise:
        canvas, decoder, _ = advance(p, s, canvas, decoder, z)
        found.append(canvas.ravel())
    return np.array(found)
