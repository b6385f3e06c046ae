"""The paper's decoder: attention, gate, LSTM and deep output, arXiv:1502.03044v3.

One photo at a time. Sizes: L locations, D annotation width, n LSTM, m embedding, K
words, A attention width, W hypotheses of a beam.

================================= ================= ===============================
name in `p`                       shape             meaning
================================= ================= ===============================
embedding                         (K, m)            E
w_a_0 .., b_a_0 ..                (D, A), (A,)      W_a: layers on the annotations
w_h, w_att                        (n, A), (A, 1)    the rest of f_att
w_beta, b_beta                    (n, 1), (1,)      f_beta
lstm_y, lstm_h, lstm_z, lstm_b    (., 4 n), (4 n,)  gates i, f, o, g
init_h_w0 .., init_h_b0 ..        (D, n), (n,)      f_init,h; f_init,c likewise
l_h, l_b, l_z, l_o, l_o_b         (n, m) .. (m, K)  deep output
================================= ================= ===============================
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from show_attend_tell.config.captioner import ModelSettings
from show_attend_tell.reference.beam import sample_index, softmax
from show_attend_tell.reference.decoder import (
    Choose,
    NextWord,
    State,
    WeightLayout,
    Weights,
)


class Photo(NamedTuple):
    """What every step reads of a photo, computed once."""

    a: np.ndarray  # annotation vectors, (L, D)
    projected: np.ndarray  # W_a a_i + b, (L, A)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)), without overflow."""
    y: np.ndarray = 0.5 * (1 + np.tanh(0.5 * x))
    return y


def relu(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return max(0, x), element by element."""
    y: np.ndarray = np.maximum(x, 0, out=out)
    return y


# Of f_att, by the values of ``model.activation``.
ACTIVATIONS: dict[str, Callable[..., np.ndarray]] = {"tanh": np.tanh, "relu": relu}


def read_photo(
    p: Weights,
    settings: ModelSettings,
    a: np.ndarray,
    grid: tuple[int, int] | None = None,
) -> Photo:
    """Project the annotations (L, D) once; the activation is between the layers."""
    activation = ACTIVATIONS[settings.activation]
    projected = a @ p["w_a_0"] + p["b_a_0"]  # (L, D) -> (L, A)
    for j in range(1, settings.attention_layers):
        projected = activation(projected) @ p[f"w_a_{j}"] + p[f"b_a_{j}"]
    return Photo(a, projected)


def start(p: Weights, settings: ModelSettings, photo: Photo) -> State:
    """Return c_0 = f_init,c(mean_i a_i) and h_0 = f_init,h(mean_i a_i), (1, n)."""
    mean = photo.a.mean(axis=0, keepdims=True)  # (L, D) -> (1, D)
    if settings.attention == "none":  # the photo is the LSTM's first input
        # From h = c = 0 and without a word; f would multiply c = 0.
        i, _, o, g = np.split(mean @ p["lstm_z"] + p["lstm_b"], 4, axis=-1)
        c = sigmoid(i) * np.tanh(g)
        return {"h": sigmoid(o) * np.tanh(c), "c": c}
    # Of the dtype of the mean: zeros of float64 would make every later step float64.
    zero = np.zeros((1, len(p["lstm_h"])), mean.dtype)
    last = settings.init_layers - 1
    state: State = {}
    for part in "hc":
        x = mean if settings.init_layers else zero
        for j in range(settings.init_layers):
            x = x @ p[f"init_{part}_w{j}"] + p[f"init_{part}_b{j}"]
            x = np.tanh(x) if j == last else relu(x)
        state[part] = x
    return state


def attention_scores(
    p: Weights, settings: ModelSettings, photo: Photo, h: np.ndarray
) -> np.ndarray:
    """Return e_ti = f_att(a_i, h_{t-1}), Eq. (4), (W, n) -> (W, L).

    Keras computes the same in ``attention_scores`` and ``tanh_scores`` (search) of
    ``models/lstm/attention.py``, and in ``models/lstm/fast_gradient.py`` (training);
    ``tests/models/lstm/test_four_attentions.py`` compares the four.
    """
    hidden = photo.projected + (h @ p["w_h"])[..., None, :]  # (W, L, A)
    activation = ACTIVATIONS[settings.activation]
    # In place: (W, L, A) is the largest array of a step.
    return activation(hidden, out=hidden) @ p["w_att"][:, 0]


def attend(
    p: Weights,
    settings: ModelSettings,
    photo: Photo,
    h: np.ndarray,
    choose: Choose | None = None,
    bias: np.ndarray | float = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compute one step of attention.

    Args:
        p: weights.
        settings: ModelSettings.
        photo: from ``read_photo``.
        h: h_{t-1}, (W, n).
        choose: alpha (W, L) -> one-hot s_t; None averages by alpha.
        bias: added to the scores, see ``region_bias``.

    Returns:
        z_hat (W, D), alpha (W, L), the weights of phi (W, L) and beta (W, 1).
    """
    alpha = softmax(attention_scores(p, settings, photo, h) + bias)  # Eq. (5)
    weights = alpha if choose is None else choose(alpha)  # Eq. (8)
    phi = weights @ photo.a  # Eq. (6), (9): (W, L) -> (W, D)
    # No word has a context; the shape stays.
    if settings.attention == "none":
        phi = 0 * phi
    beta = np.ones_like(phi[..., :1])
    if settings.selector:
        beta = sigmoid(h @ p["w_beta"] + p["b_beta"])  # Sec. 4.2.1
    return beta * phi, alpha, weights, beta


def lstm(
    p: Weights, embedded: np.ndarray, h: np.ndarray, c: np.ndarray, z_hat: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return h_t and c_t, Eq. (1)-(3)."""
    gates = embedded @ p["lstm_y"] + h @ p["lstm_h"] + z_hat @ p["lstm_z"] + p["lstm_b"]
    i, f, o, g = np.split(gates, 4, axis=-1)  # (W, 4 n) -> four of (W, n)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def deep_output(
    p: Weights,
    settings: ModelSettings,
    embedded: np.ndarray,
    h: np.ndarray,
    z_hat: np.ndarray,
) -> np.ndarray:
    """Return L_o tanh(E y_{t-1} + L_h h_t + L_z z_hat_t), Eq. (7), (W, K)."""
    hidden = h @ p["l_h"] + p["l_b"]
    if settings.prev2out:
        hidden = hidden + embedded
    if settings.ctx2out:
        hidden = hidden + z_hat @ p["l_z"]
    logits: np.ndarray = np.tanh(hidden) @ p["l_o"] + p["l_o_b"]
    return logits


def step(
    p: Weights,
    settings: ModelSettings,
    photo: Photo,
    words: np.ndarray,
    state: State,
    choose: Choose | None = None,
    bias: np.ndarray | float = 0,
) -> NextWord:
    """Advance hypotheses by one word, y_{t-1} (W,)."""
    embedded = p["embedding"][words]  # (W, m)
    h = state["h"]
    c = state["c"]
    z_hat, alpha, weights, beta = attend(p, settings, photo, h, choose, bias)
    h, c = lstm(p, embedded, h, c, z_hat)
    logits = deep_output(p, settings, embedded, h, z_hat)
    return NextWord(logits, {"h": h, "c": c}, alpha, weights, beta[..., 0])


def argmax_location(alpha: np.ndarray) -> np.ndarray:
    """Return the one-hot location of the largest alpha, of equal ones the first."""
    one_hot: np.ndarray = np.eye(alpha.shape[-1], dtype=alpha.dtype)[alpha.argmax(-1)]
    return one_hot


def sampled_location(alpha: np.ndarray, u: float) -> np.ndarray:
    """Return one-hot s_t ~ Multinoulli(alpha_t), Eq. (8), u uniform in [0, 1)."""
    location = sample_index(alpha, u)
    one_hot: np.ndarray = np.eye(alpha.shape[-1], dtype=alpha.dtype)[location]
    return one_hot


def region_bias(shares: np.ndarray, strength: float) -> np.ndarray:
    """Return b_i = s log(m_i + 1e-3), which directs attention to a region.

    alpha_ti is then proportional to exp(e_ti) (m_i + 1e-3)^s: the model's own
    attention, weighted by the region. A location outside loses 6.9 s nats. The paper
    has no regions.

    Args:
        shares: m, (..., L) in [0, 1], the share of each location's area that is inside
            the region; see :func:`data.region.cell_shares`.
        strength: s, at least 0; 0 ignores the region.
    """
    bias: np.ndarray = np.log(np.asarray(shares, np.float32) + 1e-3)
    return np.float32(strength) * bias


def read(
    p: Weights,
    settings: ModelSettings,
    a: np.ndarray,
    words: Sequence[int] | np.ndarray,
    grid: tuple[int, int] | None = None,
    locations: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Run the decoder over the words y_0 .. y_{T-1} of a caption.

    Args:
        p: weights.
        settings: ModelSettings.
        a: scaled annotations of one photo, (L, D).
        words: (T,).
        grid: not used.
        locations: s_t of each step, (T,); None averages by alpha.
        bias: added to the scores of each step, (T, L).

    Returns:
        ``logits`` (T, K), ``alpha`` (T, L), ``beta`` (T,), ``h`` and ``c`` (T, n).
    """
    photo = read_photo(p, settings, a)
    state = start(p, settings, photo)
    steps = []
    for t, word in enumerate(words):
        choose = None
        if locations is not None:
            choose = functools.partial(_given_location, location=locations[t])
        bias_t = 0 if bias is None else bias[t]
        out = step(p, settings, photo, np.array([word]), state, choose, bias_t)
        state = out.state
        steps.append((out.logits, out.alpha, out.beta, state["h"], state["c"]))
    fields = map(np.concatenate, zip(*steps, strict=True))  # T of (1, ...) -> (T, ...)
    return dict(zip(("logits", "alpha", "beta", "h", "c"), fields, strict=True))


def _given_location(alpha: np.ndarray, location: int) -> np.ndarray:
    """Return the one-hot context weights of a location, (1, L)."""
    return np.eye(alpha.shape[-1])[None, location]


def layout(settings: ModelSettings, words: int, width: int) -> list[WeightLayout]:
    """Return the name and the shape of each weight, K words, width D."""
    s = settings
    D = width
    K = words
    m = s.embedding_width
    n = s.lstm_width
    A = s.attention_width
    # In the order in which the decoder of Keras adds its weights.
    shapes: dict[str, tuple[int, ...]] = {"embedding": (K, m)}
    # All matrices of f_att's layers come before their biases.
    for j in range(s.attention_layers):
        shapes[f"w_a_{j}"] = (D if j == 0 else A, A)
    for j in range(s.attention_layers):
        shapes[f"b_a_{j}"] = (A,)
    shapes["w_h"] = (n, A)
    shapes["w_att"] = (A, 1)
    if s.selector:
        shapes["w_beta"] = (n, 1)
        shapes["b_beta"] = (1,)
    shapes["lstm_y"] = (m, 4 * n)
    shapes["lstm_z"] = (D, 4 * n)
    shapes["lstm_h"] = (n, 4 * n)
    shapes["lstm_b"] = (4 * n,)
    if s.attention != "none":
        for part in "hc":
            for j in range(s.init_layers):
                out = n if j == s.init_layers - 1 else D
                shapes[f"init_{part}_w{j}"] = (D, out)
                shapes[f"init_{part}_b{j}"] = (out,)
    shapes["l_h"] = (n, m)
    shapes["l_b"] = (m,)
    if s.ctx2out:
        shapes["l_z"] = (D, m)
    shapes["l_o"] = (m, K)
    shapes["l_o_b"] = (K,)
    return list(shapes.items())
