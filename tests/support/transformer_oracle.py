"""Compute the Transformer's equations in NumPy, one caption at a time and in float64.

Written from arXiv:1706.03762 and the docstrings, with loops over heads and rows in
place of batched products. Weights are a dict of arrays by path, such as
``layer_1_words/w_q`` or ``memory_norm/gamma``.
"""

import numpy as np
from oracle import softmax

EPSILON = 1e-5


def positional_encoding(p, width):
    """Return PE(p), one entry after the other."""
    values = []
    for i in range(width // 2):
        angle = p / 10000 ** (2 * i / width)
        values += [np.sin(angle), np.cos(angle)]
    return np.array(values)


def norm(p, name, x):
    """Return LN(x) of one row."""
    x = (x - x.mean()) / np.sqrt(x.var() + EPSILON)
    return x * p[f"{name}/gamma"] + p[f"{name}/beta"]


def attention(q, keys, values, bias=0.0):
    """Return softmax(K q / sqrt(d)) V of one query, and the weights."""
    scores = np.array([q @ key for key in keys]) / np.sqrt(len(q)) + bias
    weights = softmax(scores)
    return sum(w * v for w, v in zip(weights, values, strict=True)), weights


def multi_head(p, name, x, rows, heads, bias=0.0):
    """Return MultiHead(x, rows) of one x (d,), and the weights (H, rows)."""

    def affine(y, part):
        return y @ p[f"{name}/w_{part}"] + p.get(f"{name}/b_{part}", 0)

    q, keys, values = affine(x, "q"), affine(rows, "k"), affine(rows, "v")
    size, joined, weights = len(q) // heads, [], []
    for j in range(heads):
        own = slice(j * size, (j + 1) * size)
        head, w = attention(q[own], keys[:, own], values[:, own], bias)
        joined.append(head)
        weights.append(w)
    return affine(np.concatenate(joined), "o"), np.array(weights)


def feed_forward(p, name, x):
    """Return FFN(x), Eq. (2)."""
    hidden = np.maximum(0, x @ p[f"{name}/w_1"] + p[f"{name}/b_1"])
    return hidden @ p[f"{name}/w_2"] + p[f"{name}/b_2"]


def layer(p, name, x, settings, memory=None, causal=True, bias=None):
    """Return one layer's output for rows x (T, d), and its weights on memory."""
    pre, all_weights = settings.norm == "pre", []

    def add(x, norm_name, sublayer):
        """Apply a sublayer to (row number, its input, all inputs)."""
        given = np.array([norm(p, norm_name, row) for row in x]) if pre else x
        total = np.array([row + sublayer(t, given) for t, row in enumerate(x)])
        return total if pre else np.array([norm(p, norm_name, row) for row in total])

    def words(t, y):
        rows = y[: t + 1] if causal else y
        return multi_head(p, f"{name}_words", y[t], rows, settings.heads)[0]

    def photo(t, y):
        b = 0.0 if bias is None else bias[t]
        given = f"{name}_photo", y[t], memory, settings.heads, b
        value, weights = multi_head(p, *given)
        all_weights.append(weights)
        return value

    x = add(x, f"{name}_words_norm", words)
    if memory is not None:
        x = add(x, f"{name}_photo_norm", photo)
    x = add(x, f"{name}_hidden_norm", lambda t, y: feed_forward(p, name, y[t]))
    return x, np.array(all_weights)


def memory(p, a, grid, settings):
    """Return m (L, d) of one photo (L, D)."""
    rows, d = [], settings.width
    for i, a_i in enumerate(a):
        m = np.maximum(0, a_i @ p["decoder/w_m"] + p["decoder/b_m"])
        m = norm(p, "memory_norm", m)
        if settings.positions == "grid":
            row, column = divmod(i, grid[1])
            halves = [positional_encoding(x, d // 2) for x in (row, column)]
            m = m + np.concatenate(halves)
        rows.append(m)
    m = np.array(rows)
    for k in range(settings.encoder_layers):
        m, _ = layer(p, f"encoder_layer_{k + 1}", m, settings, causal=False)
    if settings.encoder_layers and settings.norm == "pre":
        m = np.array([norm(p, "encoder_norm", row) for row in m])
    return m


def run(p, a, words, grid, settings, bias=None):
    """Return logits, alpha and head weights of words (T,) and one photo (L, D)."""
    m, d = memory(p, a, grid, settings), settings.width
    x = np.array(
        [
            np.sqrt(d) * p["decoder/embedding"][word] + positional_encoding(t, d)
            for t, word in enumerate(words)
        ]
    )
    heads = []
    for k in range(settings.layers):
        x, weights = layer(p, f"layer_{k + 1}", x, settings, m, bias=bias)
        heads.append(weights)  # (T, H, L)
    if settings.norm == "pre":
        x = np.array([norm(p, "output_norm", row) for row in x])
    output = p["decoder/embedding"].T if settings.tie_output else p["decoder/l_o"]
    shown = settings.layers if settings.alpha_layer == 0 else settings.alpha_layer
    alpha, head = heads[shown - 1], settings.alpha_head  # (T, H, L)
    return {
        "logits": x @ output + p["decoder/l_o_b"],
        "alpha": alpha[:, head - 1] if head else alpha.mean(axis=1),
        "beta": np.ones(len(words)),
        "heads": np.array(heads).swapaxes(1, 2),  # (N, H, T, L)
    }
