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

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from show_attend_tell.config.captioner import TransformerSettings
from show_attend_tell.reference.beam import softmax
from show_attend_tell.reference.decoder import (
    Choose,
    NextWord,
    State,
    WeightLayout,
    Weights,
)

Shapes: TypeAlias = dict[str, tuple[int, ...]]

EPSILON = 1e-5  # added to the variance in a layer normalisation


class KeysValues(NamedTuple):
    """What attention reads: K and V, (..., S, d_h) each."""

    keys: np.ndarray
    values: np.ndarray


class Photo(NamedTuple):
    """What every step reads of a photo, computed once."""

    m: np.ndarray  # (L, d)
    layers: list[KeysValues]  # of each layer, (H, L, d_h) each


def sinusoids(positions: Sequence[int] | np.ndarray, width: int) -> np.ndarray:
    """Return PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(..), (P, d)."""
    rates = 10_000.0 ** (-np.arange(0, width, 2) / width)  # (d / 2,)
    angles = np.multiply.outer(positions, rates)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)  # (P, d / 2, 2)
    return pairs.reshape(len(angles), width).astype(np.float32)


def normalise(p: Weights, name: str, x: np.ndarray) -> np.ndarray:
    """Return the layer normalisation of each row."""
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)
    normalised: np.ndarray = x * p[f"{name}/gamma"] + p[f"{name}/beta"]
    return normalised


def attention(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, bias: np.ndarray | float = 0
) -> tuple[np.ndarray, np.ndarray]:
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


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """Return (..., R, d) as (..., H, R, d_h)."""
    return np.swapaxes(x.reshape(*x.shape[:-1], heads, -1), -2, -3)


def keys_of(p: Weights, name: str, y: np.ndarray, heads: int) -> KeysValues:
    """Return keys y W^K and values y W^V of each head, (..., H, S, d_h)."""
    keys = y @ p[f"{name}/w_k"]
    values = y @ p[f"{name}/w_v"] + p[f"{name}/b_v"]
    return KeysValues(split_heads(keys, heads), split_heads(values, heads))


def multi_head(
    p: Weights,
    name: str,
    x: np.ndarray,
    source: KeysValues,
    bias: np.ndarray | float = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return [head_1 .. head_H] W^O, (..., R, d), and the weights (..., H, R, S)."""
    q = split_heads(x @ p[f"{name}/w_q"] + p[f"{name}/b_q"], source.keys.shape[-3])
    heads, weights = attention(q, source.keys, source.values, bias)
    joined = np.swapaxes(heads, -2, -3).reshape(x.shape)  # (..., R, H, d_h)
    return joined @ p[f"{name}/w_o"] + p[f"{name}/b_o"], weights


def feed_forward(p: Weights, name: str, x: np.ndarray) -> np.ndarray:
    """Return max(0, x W_1 + b_1) W_2 + b_2, Eq. (2)."""
    hidden = np.maximum(x @ p[f"{name}/w_1"] + p[f"{name}/b_1"], 0)
    y: np.ndarray = hidden @ p[f"{name}/w_2"] + p[f"{name}/b_2"]
    return y


def before(
    p: Weights, norm: str, settings: TransformerSettings, x: np.ndarray
) -> np.ndarray:
    """Return what a sublayer reads: LN(x) with ``norm = "pre"``, x with "post"."""
    return normalise(p, norm, x) if settings.norm == "pre" else x


def after(
    p: Weights, norm: str, settings: TransformerSettings, x: np.ndarray
) -> np.ndarray:
    """Return x + F of a sublayer; its layer normalisation with ``norm = "post"``."""
    return normalise(p, norm, x) if settings.norm == "post" else x


def read_words(
    p: Weights,
    name: str,
    settings: TransformerSettings,
    x: np.ndarray,
    bias: np.ndarray | float = 0,
) -> np.ndarray:
    """Apply a layer's attention of all rows to all rows, (R, d)."""
    norm = f"{name}_words_norm"
    y = before(p, norm, settings, x)
    own = keys_of(p, f"{name}_words", y, settings.heads)
    value, _ = multi_head(p, f"{name}_words", y, own, bias)
    return after(p, norm, settings, x + value)


def look(
    p: Weights,
    name: str,
    settings: TransformerSettings,
    x: np.ndarray,
    photo: KeysValues,
    bias: np.ndarray | float = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Apply a layer's attention to the photo.

    Args:
        p: weights.
        name: name of the layer.
        settings: TransformerSettings.
        x: one row for each word or hypothesis, (R, d).
        photo: keys and values of the photo.
        bias: added to the scores of the photo's locations, (R, L) or (L,).

    Returns:
        (R, d), and the weights of the photo's locations, (H, R, L).
    """
    norm = f"{name}_photo_norm"
    y = before(p, norm, settings, x)
    value, weights = multi_head(p, f"{name}_photo", y, photo, bias)
    return after(p, norm, settings, x + value), weights


def transform(
    p: Weights, name: str, settings: TransformerSettings, x: np.ndarray
) -> np.ndarray:
    """Apply a layer's feed-forward network, (R, d)."""
    norm = f"{name}_hidden_norm"
    y = before(p, norm, settings, x)
    return after(p, norm, settings, x + feed_forward(p, name, y))


def read_photo(
    p: Weights, settings: TransformerSettings, a: np.ndarray, grid: tuple[int, int]
) -> Photo:
    """Compute m, and its keys and values in each layer, from annotations (L, D)."""
    m = np.maximum(a @ p["decoder/w_m"] + p["decoder/b_m"], 0)  # (L, D) -> (L, d)
    m = normalise(p, "memory_norm", m)
    if settings.positions == "grid":
        half = settings.width // 2
        places = np.divmod(np.arange(len(a)), grid[1])  # row and column
        m = m + np.hstack([sinusoids(place, half) for place in places])
    for k in range(settings.encoder_layers):
        name = f"encoder_layer_{k + 1}"
        m = read_words(p, name, settings, m)
        m = transform(p, name, settings, m)
    if settings.encoder_layers and settings.norm == "pre":
        m = normalise(p, "encoder_norm", m)
    # Once per photo: m is the same at every word.
    names = [f"layer_{k + 1}_photo" for k in range(settings.layers)]
    return Photo(m, [keys_of(p, name, m, settings.heads) for name in names])


def alpha_of(
    settings: TransformerSettings, weights: Sequence[np.ndarray]
) -> np.ndarray:
    """Return alpha (R, L) of each layer's (H, R, L): of one head, or their mean."""
    heads = weights[settings.alpha_layer - 1]  # 0 is the last layer
    if settings.alpha_head:
        alpha: np.ndarray = heads[settings.alpha_head - 1]
    else:
        alpha = heads.mean(axis=0)
    return alpha


def embed(
    p: Weights,
    settings: TransformerSettings,
    words: Sequence[int] | np.ndarray,
    positions: Sequence[int] | np.ndarray,
) -> np.ndarray:
    """Return x_0 = sqrt(d) E y + PE, (R, d)."""
    embedded = p["decoder/embedding"][words] * settings.width**0.5
    x: np.ndarray = embedded + sinusoids(positions, settings.width)
    return x


def logits_of(p: Weights, settings: TransformerSettings, x: np.ndarray) -> np.ndarray:
    """Return E LN(x_N) + b_o, (R, d) -> (R, K)."""
    if settings.norm == "pre":
        x = normalise(p, "output_norm", x)
    matrix = p["decoder/embedding"].T if settings.tie_output else p["decoder/l_o"]
    logits: np.ndarray = x @ matrix + p["decoder/l_o_b"]
    return logits


def start(p: Weights, settings: TransformerSettings, photo: Photo) -> State:
    """Return keys and values of no words, (1, N, H, 0, d_h) each, and their number."""
    N = settings.layers
    H, _, size = photo.layers[0].keys.shape
    empty = np.zeros((1, N, H, 0, size), photo.m.dtype)
    return {"keys": empty, "values": empty, "position": np.zeros(1)}


def step(
    p: Weights,
    settings: TransformerSettings,
    photo: Photo,
    words: np.ndarray,
    state: State,
    choose: Choose | None = None,
    bias: np.ndarray | float = 0,
) -> NextWord:
    """Advance hypotheses by one word, y_{t-1} (W,).

    The keys and values of a hypothesis' own words are its state, (W, N, H, t, d_h), and
    so is their number t, (W,).
    """
    x = embed(p, settings, words, state["position"])  # (W, d)
    all_keys = []
    all_values = []
    all_weights = []
    for k, layer_photo in enumerate(photo.layers):
        name = f"layer_{k + 1}"
        norm = f"{name}_words_norm"
        # Each hypothesis is a batch of one row, as it attends to its own words alone.
        y = before(p, norm, settings, x)[:, None]  # (W, d) -> (W, 1, d)
        new = keys_of(p, f"{name}_words", y, settings.heads)  # (W, H, 1, d_h)
        # (W, H, t, d_h) -> (W, H, t + 1, d_h)
        keys = np.concatenate([state["keys"][:, k], new.keys], axis=2)
        values = np.concatenate([state["values"][:, k], new.values], axis=2)
        value, _ = multi_head(p, f"{name}_words", y, KeysValues(keys, values))
        x = after(p, norm, settings, x + value[:, 0])  # (W, 1, d) -> (W, d)
        x, weights = look(p, name, settings, x, layer_photo, bias)
        x = transform(p, name, settings, x)
        all_keys.append(keys)
        all_values.append(values)
        all_weights.append(weights)  # (H, W, L)
    state = {
        "keys": np.stack(all_keys, axis=1),
        "values": np.stack(all_values, axis=1),
        "position": state["position"] + 1,
    }
    alpha = alpha_of(settings, all_weights)  # -> (W, L)
    beta = np.ones(len(x), x.dtype)
    return NextWord(logits_of(p, settings, x), state, alpha, alpha, beta)


def read(
    p: Weights,
    settings: TransformerSettings,
    a: np.ndarray,
    words: Sequence[int] | np.ndarray,
    grid: tuple[int, int],
    locations: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
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
    T = len(words)
    photo = read_photo(p, settings, a, grid)
    # Word t reads the words up to t alone.
    later = np.arange(T) > np.arange(T)[:, None]
    causal = np.where(later, -np.inf, 0).astype(np.float32)  # (T, T)
    photo_bias = 0 if bias is None else bias
    x = embed(p, settings, words, range(T))  # (T, d)
    heads = []
    for k, layer_photo in enumerate(photo.layers):
        name = f"layer_{k + 1}"
        x = read_words(p, name, settings, x, causal)
        x, weights = look(p, name, settings, x, layer_photo, photo_bias)
        x = transform(p, name, settings, x)
        heads.append(weights)
    return {
        "logits": logits_of(p, settings, x),
        "alpha": alpha_of(settings, heads),
        "beta": np.ones(T),
        "heads": np.array(heads),
    }


def layout(settings: TransformerSettings, words: int, width: int) -> list[WeightLayout]:
    """Return the name and the shape of each weight, K words, width D."""
    s = settings
    d = s.width
    # In the order in which Keras lists the weights: a layer's own, then its sublayers'.
    own: Shapes = {"embedding": (words, d), "w_m": (width, d), "b_m": (d,)}
    if not s.tie_output:
        own["l_o"] = (d, words)
    own["l_o_b"] = (words,)
    weights = _named("decoder", own)
    weights += _norm("memory_norm", d)
    for k in range(s.encoder_layers):
        weights += _layer_layout(f"encoder_layer_{k + 1}", s, ("words",))
    for k in range(s.layers):
        weights += _layer_layout(f"layer_{k + 1}", s, ("words", "photo"))
    if s.norm == "pre":
        weights += _norm("output_norm", d)
        if s.encoder_layers:
            weights += _norm("encoder_norm", d)
    return weights


def _layer_layout(
    name: str, settings: TransformerSettings, parts: Sequence[str]
) -> list[WeightLayout]:
    d = settings.width
    hidden = settings.hidden
    own: Shapes = {
        "w_1": (d, hidden),
        "b_1": (hidden,),
        "w_2": (hidden, d),
        "b_2": (d,),
    }
    weights = _named(name, own)
    heads: Shapes = {f"w_{x}": (d, d) for x in "qkvo"}
    heads |= {f"b_{x}": (d,) for x in "qvo"}
    for part in parts:
        weights += _named(f"{name}_{part}", heads)
        weights += _norm(f"{name}_{part}_norm", d)
    return weights + _norm(f"{name}_hidden_norm", d)


def _named(name: str, shapes: Shapes) -> list[WeightLayout]:
    return [(f"{name}/{part}", shape) for part, shape in shapes.items()]


def _norm(name: str, d: int) -> list[WeightLayout]:
    return _named(name, {"gamma": (d,), "beta": (d,)})
