"""A Transformer over the annotations, arXiv:1706.03762.

One photo at a time. Sizes: L locations, D annotation width, d width, H heads of d_h =
d / H, K words, W hypotheses of a beam::

    m = LN(max(0, a W_m + b_m)) + P               P the sines of row and column
    x_0 = sqrt(d) E y_{t-1} + PE(t - 1)
    x_k = FFN(attention to m(attention to the words so far(x_{k-1})))
    p(y_t | a, y_<t) = softmax(E LN(x_N) + b_o)

Each sublayer F with its layer normalisation LN is x + F(LN(x)) with ``norm = "pre"``,
LN(x + F(x)) with "post". alpha_t is the attention to m in one layer, of one head or the
mean over all, and beta_t is 1. The weights `p` are named by layer, such as
``layer_1_words/w_q``.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from show_attend_tell.reference.beam import NextWord, softmax

EPSILON = 1e-5  # added to the variance in a layer normalisation


class Photo(NamedTuple):
    """What every step reads of a photo, computed once."""

    m: np.ndarray  # (L, d)
    layers: list  # keys and values of each layer, (H, L, d_h) each


def sinusoids(positions, width: int):
    """Return PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(..), (P, d)."""
    rates = 10_000.0 ** (-np.arange(0, width, 2) / width)  # (d / 2,)
    angles = np.multiply.outer(positions, rates)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)  # (P, d / 2, 2)
    return pairs.reshape(len(angles), width).astype(np.float32)


def normalise(p: dict, name: str, x):
    """Return the layer normalisation of each row."""
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)
    return x * p[f"{name}/gamma"] + p[f"{name}/beta"]


def attention(q, keys, values, bias=0):
    """Return softmax(Q K^T / sqrt(d_h)) V, Eq. (1), and the weights.

    Args:
        q: (..., R, d_h).
        keys: (..., S, d_h).
        values: (..., S, d_h).
        bias: added to the scores (..., R, S).
    """
    scores = q @ np.swapaxes(keys, -1, -2) / q.dtype.type(q.shape[-1] ** 0.5)
    weights = softmax(scores + bias)
    return weights @ values, weights


def split_heads(x, heads: int):
    """Return (..., R, d) as (..., H, R, d_h)."""
    return np.swapaxes(x.reshape(*x.shape[:-1], heads, -1), -2, -3)


def keys_of(p: dict, name: str, y, heads: int):
    """Return keys y W^K and values y W^V of each head, (..., H, S, d_h)."""
    keys, values = y @ p[f"{name}/w_k"], y @ p[f"{name}/w_v"] + p[f"{name}/b_v"]
    return split_heads(keys, heads), split_heads(values, heads)


def multi_head(p: dict, name: str, x, keys, values, bias=0):
    """Return [head_1 .. head_H] W^O, (..., R, d), and the weights (..., H, R, S)."""
    q = split_heads(x @ p[f"{name}/w_q"] + p[f"{name}/b_q"], keys.shape[-3])
    heads, weights = attention(q, keys, values, bias)
    joined = np.swapaxes(heads, -2, -3).reshape(x.shape)  # (..., R, H, d_h)
    return joined @ p[f"{name}/w_o"] + p[f"{name}/b_o"], weights


def feed_forward(p: dict, name: str, x):
    """Return max(0, x W_1 + b_1) W_2 + b_2, Eq. (2)."""
    hidden = np.maximum(x @ p[f"{name}/w_1"] + p[f"{name}/b_1"], 0)
    return hidden @ p[f"{name}/w_2"] + p[f"{name}/b_2"]


def layer(p: dict, name: str, settings, x, read_words: Callable, photo=None, bias=0):
    """Apply a layer to rows x (R, d): words, photo, feed-forward.

    Args:
        p: weights.
        name: name of the layer.
        settings: TransformerSettings.
        x: one row for each word or hypothesis, (R, d).
        read_words: attention of the rows to words.
        photo: keys and values of the photo; None for a layer without them.
        bias: added to the scores of the photo's locations, (R, L) or (L,).

    Returns:
        (R, d), and the weights of the photo's locations, (H, R, L).
    """
    weights = None

    def read_photo(y):
        nonlocal weights
        value, weights = multi_head(p, f"{name}_photo", y, *photo, bias)
        return value

    sublayers = {"words": read_words, "photo": read_photo}
    sublayers["hidden"] = lambda y: feed_forward(p, name, y)
    if photo is None:
        del sublayers["photo"]
    for part, sublayer in sublayers.items():
        norm = f"{name}_{part}_norm"
        if settings.norm == "pre":
            x = x + sublayer(normalise(p, norm, x))
        else:
            x = normalise(p, norm, x + sublayer(x))
    return x, weights


def all_words(p: dict, name: str, heads: int, bias=0) -> Callable:
    """Return the attention of all rows to all rows."""

    def read_words(y):
        keys, values = keys_of(p, f"{name}_words", y, heads)
        return multi_head(p, f"{name}_words", y, keys, values, bias)[0]

    return read_words


def read_photo(p: dict, settings, a, grid) -> Photo:
    """Compute m, and its keys and values in each layer, from annotations (L, D)."""
    m = np.maximum(a @ p["decoder/w_m"] + p["decoder/b_m"], 0)  # (L, D) -> (L, d)
    m = normalise(p, "memory_norm", m)
    if settings.positions == "grid":
        half = settings.width // 2
        places = np.divmod(np.arange(len(a)), grid[1])  # row and column
        m = m + np.hstack([sinusoids(place, half) for place in places])
    H = settings.heads
    for k in range(settings.encoder_layers):
        name = f"encoder_layer_{k + 1}"
        m, _ = layer(p, name, settings, m, all_words(p, name, H))
    if settings.encoder_layers and settings.norm == "pre":
        m = normalise(p, "encoder_norm", m)
    names = [f"layer_{k + 1}_photo" for k in range(settings.layers)]
    return Photo(m, [keys_of(p, name, m, H) for name in names])


def shown(settings, weights):
    """Return alpha (R, L) of each layer's (H, R, L): of one head, or their mean."""
    heads = weights[settings.alpha_layer - 1]
    if settings.alpha_head:
        return heads[settings.alpha_head - 1]
    return heads.mean(axis=0)


def embed(p: dict, settings, words, positions):
    """Return x_0 = sqrt(d) E y + PE, (R, d)."""
    embedded = p["decoder/embedding"][words] * settings.width**0.5
    return embedded + sinusoids(positions, settings.width)


def logits_of(p: dict, settings, x):
    """Return E LN(x_N) + b_o, (R, d) -> (R, K)."""
    if settings.norm == "pre":
        x = normalise(p, "output_norm", x)
    matrix = p["decoder/embedding"].T if settings.tie_output else p["decoder/l_o"]
    return x @ matrix + p["decoder/l_o_b"]


def start(p: dict, settings, photo: Photo) -> dict:
    """Return keys and values of no words, (1, N, H, 0, d_h) each, and their number."""
    N, (H, _, size) = settings.layers, photo.layers[0][0].shape
    empty = np.zeros((1, N, H, 0, size), photo.m.dtype)
    return {"keys": empty, "values": empty, "position": np.zeros(1)}


def step(
    p: dict, settings, photo: Photo, words, state: dict, choose=None, bias=0
) -> NextWord:
    """Advance hypotheses by one word, y_{t-1} (W,).

    The keys and values of a hypothesis' own words are its state, (W, N, H, t, d_h), and
    so is their number t, (W,).
    """
    x = embed(p, settings, words, state["position"])  # (W, d)
    grown, alpha = {"keys": [], "values": []}, []
    for k, keys_and_values in enumerate(photo.layers):
        name = f"layer_{k + 1}"

        def read_words(y, name=name, k=k):
            y = y[:, None]  # (W, d) -> (W, 1, d)
            own = keys_of(p, f"{name}_words", y, settings.heads)  # (W, H, 1, d_h)
            for part, new in zip(grown, own, strict=True):
                grown[part].append(np.concatenate([state[part][:, k], new], axis=2))
            cache = grown["keys"][k], grown["values"][k]  # (W, H, t + 1, d_h)
            return multi_head(p, f"{name}_words", y, *cache)[0][:, 0]

        x, weights = layer(p, name, settings, x, read_words, keys_and_values, bias)
        alpha.append(weights)  # (H, W, L)
    alpha = shown(settings, alpha)  # -> (W, L)
    position = state["position"] + 1
    state = {part: np.stack(layers, axis=1) for part, layers in grown.items()}
    state["position"] = position
    beta = np.ones(len(x), x.dtype)
    return NextWord(logits_of(p, settings, x), state, alpha, alpha, beta)


def read(p: dict, settings, a, words, grid, locations=None, bias=None) -> dict:
    """Read the words y_0 .. y_{T-1} of a caption in parallel.

    Args:
        p: weights.
        settings: TransformerSettings.
        a: scaled annotations of one photo, (L, D).
        words: (T,).
        grid: rows and columns of the annotations.
        locations: None: the context is the mean by the weights.
        bias: added to the scores of each word's locations, (T, L).

    Returns:
        ``logits`` (T, K), ``alpha`` (T, L), ``beta`` (T,) and ``heads`` (N, H, T, L).
    """
    T, photo, heads = len(words), read_photo(p, settings, a, grid), []
    later = np.arange(T) > np.arange(T)[:, None]
    causal = np.where(later, -np.inf, 0).astype(np.float32)  # (T, T)
    x = embed(p, settings, words, range(T))  # (T, d)
    for k, keys_and_values in enumerate(photo.layers):
        name = f"layer_{k + 1}"
        read_words = all_words(p, name, settings.heads, causal)
        x, weights = layer(
            *(p, name, settings, x, read_words, keys_and_values),
            0 if bias is None else bias,
        )
        heads.append(weights)
    alpha = shown(settings, heads)
    logits, beta = logits_of(p, settings, x), np.ones(T)
    return {"logits": logits, "alpha": alpha, "beta": beta, "heads": np.array(heads)}


def layout(settings, words: int, width: int) -> list[tuple]:
    """Return (path in a model file, name, shape) of each weight, K words, width D."""
    s, d = settings, settings.width
    own = {"embedding": (words, d), "w_m": (width, d), "b_m": (d,)}
    if not s.tie_output:
        own["l_o"] = (d, words)
    weights = _numbered("decoder", "decoder", {**own, "l_o_b": (words,)})
    weights += _norm("decoder/memory_norm", "memory_norm", d)
    for stack, prefix, count, parts in (
        ("encoder_layers", "encoder_layer", s.encoder_layers, ("words",)),
        ("decoder_layers", "layer", s.layers, ("words", "photo")),
    ):
        for k in range(count):
            path = f"decoder/{stack}/transformer_layer" + (f"_{k}" if k else "")
            weights += _layer_layout(path, f"{prefix}_{k + 1}", s, parts)
    if s.norm == "pre":
        weights += _norm("decoder/output_norm", "output_norm", d)
        if s.encoder_layers:
            weights += _norm("decoder/encoder_norm", "encoder_norm", d)
    return weights


def _layer_layout(path: str, name: str, settings, parts) -> list[tuple]:
    d, hidden = settings.width, settings.hidden
    own = {"w_1": (d, hidden), "b_1": (hidden,), "w_2": (hidden, d), "b_2": (d,)}
    weights = _numbered(path, name, own)
    matrices, biases = (f"w_{x}" for x in "qkvo"), (f"b_{x}" for x in "qvo")
    heads = dict.fromkeys(matrices, (d, d)) | dict.fromkeys(biases, (d,))
    for part in parts:
        weights += _numbered(f"{path}/{part}", f"{name}_{part}", heads)
        weights += _norm(f"{path}/{part}_norm", f"{name}_{part}_norm", d)
    return weights + _norm(f"{path}/hidden_norm", f"{name}_hidden_norm", d)


def _numbered(path: str, name: str, shapes: dict) -> list[tuple]:
    return [
        (f"{path}/vars/{k}", f"{name}/{part}", shape)
        for k, (part, shape) in enumerate(shapes.items())
    ]


def _norm(path: str, name: str, d: int) -> list[tuple]:
    return _numbered(path, name, {"gamma": (d,), "beta": (d,)})
