"""Compute the paper's equations in NumPy, one caption at a time and in float64.

Written from the paper alone (arXiv:1502.03044v3), with sums in place of batched
products and without code of the package. Weights are a dict of arrays under the names
below; sizes are those of :mod:`show_attend_tell.models.lstm.attention`.

========================= ================= ======================================
name                      shape             meaning
========================= ================= ======================================
embedding                 (K, m)            E
w_a_0 .., b_a_0 ..        (D, A), (A,)      layers on the annotations in f_att
w_h, w_att                (n, A), (A, 1)    the rest of f_att
w_beta, b_beta            (n, 1), (1,)      f_beta
lstm_y, lstm_h, lstm_z    (., 4 n)          on E y, h, z_hat; columns i, f, o, g
lstm_b                    (4 n,)
init_h_w0 .., init_h_b0.. (D, n), (n,)      f_init,h; likewise init_c
l_h, l_b, l_z             (n, m) (m,) (D, m) the deep output
l_o, l_o_b                (m, K), (K,)
========================= ================= ======================================
"""

import itertools

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def log_softmax(x):
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def initial_state(p, a):
    """Return h_0 and c_0 of one photo: MLPs of the mean annotation."""
    mean = sum(a_i for a_i in a) / len(a)
    return tuple(_init(p, part, mean) for part in "hc")


def _init(p, part, value):
    layers = sum(name.startswith(f"init_{part}_w") for name in p)
    for j in range(layers):
        value = value @ p[f"init_{part}_w{j}"] + p[f"init_{part}_b{j}"]
        value = np.tanh(value) if j == layers - 1 else np.maximum(value, 0)
    return value


def scores(p, a, h, act=np.tanh):
    """Return e_ti for each location, Eq. (4)."""
    layers = sum(name.startswith("w_a_") for name in p)
    e = []
    for a_i in a:
        value = a_i @ p["w_a_0"] + p["b_a_0"]
        for j in range(1, layers):
            value = np.tanh(value) @ p[f"w_a_{j}"] + p[f"b_a_{j}"]
        e.append(act(value + h @ p["w_h"]) @ p["w_att"][:, 0])
    return np.array(e)


def context(a, alpha):
    """Return sum_i alpha_i a_i, the context before the gate."""
    return sum(weight * a_i for weight, a_i in zip(alpha, a, strict=True))


def lstm(p, embedded, h, c, z_hat):
    """Return h_t and c_t, Eq. (1)-(3)."""
    affine = embedded @ p["lstm_y"] + h @ p["lstm_h"] + z_hat @ p["lstm_z"]
    return lstm_update(affine + p["lstm_b"], c)


def lstm_update(gates, c):
    """Return h_t and c_t from the sums of the gates i, f, o, g (4 n,)."""
    i, f, o, g = np.split(gates, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def deep_output(p, embedded, h, z_hat, prev2out=True, ctx2out=True):
    """Return the logits of the next word, Eq. (7), with the authors' tanh."""
    hidden = h @ p["l_h"] + p["l_b"]
    if prev2out:
        hidden = hidden + embedded
    if ctx2out:
        hidden = hidden + z_hat @ p["l_z"]
    return np.tanh(hidden) @ p["l_o"] + p["l_o_b"]


def run(p, a, words, settings, locations=None, bias=None):
    """Run the decoder on words (T,) and one photo (L, D) of scaled annotations.

    With locations (T,) the context of each step is the annotation there, Eq. (9). A
    bias (T, L) is added to the scores of each step.

    Returns:
        dict of (T, ...) arrays: logits, alpha, beta, z_hat, h, c.
    """
    act = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}[settings.activation]
    h, c = initial_state(p, a)
    steps = []
    for t, word in enumerate(words):
        embedded = p["embedding"][word]
        alpha = softmax(scores(p, a, h, act) + (0 if bias is None else bias[t]))
        beta = 1.0
        if settings.selector:
            beta = sigmoid(h @ p["w_beta"][:, 0] + p["b_beta"][0])
        z_hat = beta * (context(a, alpha) if locations is None else a[locations[t]])
        h, c = lstm(p, embedded, h, c, z_hat)
        switches = settings.prev2out, settings.ctx2out
        logits = deep_output(p, embedded, h, z_hat, *switches)
        steps.append([logits, alpha, beta, z_hat, h, c])
    names = ("logits", "alpha", "beta", "z_hat", "h", "c")
    return {
        n: np.array(v) for n, v in zip(names, zip(*steps, strict=True), strict=True)
    }


def caption_loss(logits, alpha, words, smoothing=0.0, strength=1.0):
    """Return L_d of a caption of T words: (words' term, attention's term), Eq. (14)."""
    K = logits.shape[1]
    nll = 0.0
    for row, word in zip(logits, words, strict=True):
        truth = np.full(K, smoothing / K)
        truth[word] += 1 - smoothing
        nll -= (truth * log_softmax(row)).sum()
    return nll, strength * sum(
        (1 - alpha[:, i].sum()) ** 2 for i in range(alpha.shape[1])
    )


def sampled_location(alpha, u):
    """Return the first location at which the cumulative sum of alpha exceeds u."""
    total = 0.0
    for i, weight in enumerate(alpha):
        total += weight
        if total > u:
            return i
    raise AssertionError("u must be below the sum of alpha")


def word_log_likelihoods(logits, words):
    """Return log p(y_t|s,a) of each of T words, from the logits (T, K)."""
    return [log_softmax(row)[word] for row, word in zip(logits, words, strict=True)]


def log_likelihood(logits, words):
    """Return log p(y|s,a) of T words, from the logits (T, K)."""
    return sum(word_log_likelihoods(logits, words))


def location_log_prob(alpha, locations):
    """Return log p(s|a) = sum_t log alpha_t[s_t]."""
    return sum(np.log(row[i]) for row, i in zip(alpha, locations, strict=True))


def location_entropy(alpha):
    """Return H[s] along a path, the sum of the entropies of its steps."""
    return -sum(x * np.log(x) for row in alpha for x in row)


def surrogate(read, words, locations, baseline, hard, others=()):
    """Return the value whose gradient is minus Eq. (12), for one sample of a caption.

    Args:
        read: outputs of :func:`run`.
        words: (T,).
        locations: (T,), or None for the expected context.
        baseline: the moving baseline b.
        hard: HardAttentionSettings.
        others: outputs of the other samples of the caption.
    """
    each = word_log_likelihoods(read["logits"], words)
    value = sum(each) + hard.entropy_weight * location_entropy(read["alpha"])
    baselines = [baseline] * len(each)
    if hard.baseline == "samples":
        rows = [word_log_likelihoods(other["logits"], words) for other in others]
        baselines, baseline = np.mean(rows, axis=0), np.mean(rows, axis=0).sum()
    for t, location in enumerate([] if locations is None else locations):
        if hard.reward_per == "caption":
            reward = sum(each) - baseline
        elif hard.reward_per == "caption_mean":
            reward = np.mean([w - b for w, b in zip(each, baselines, strict=True)])
        else:
            reward = sum(w - b for w, b in zip(each[t:], baselines[t:], strict=True))
        reward = hard.reinforce_weight * hard.reward_scale * reward
        value += reward * np.log(read["alpha"][t][location])
    return -value


def enumerate_locations(p, a, inputs, words, settings):
    """Return log p(s|a) and log p(y|s,a) of every sequence s, (L^T, 2)."""
    rows = []
    for s in itertools.product(range(len(a)), repeat=len(words)):
        read = run(p, a, inputs, settings, s)
        reached = log_likelihood(read["logits"], words)
        rows.append((location_log_prob(read["alpha"], s), reached))
    return np.array(rows)


def lower_bound(pairs):
    """Return L_s = sum_s p(s|a) log p(y|s,a), Eq. (10)."""
    return sum(np.exp(log_p) * reached for log_p, reached in pairs)


def log_marginal(pairs):
    """Return log p(y|a) = log sum_s p(s|a) p(y|s,a)."""
    return np.log(sum(np.exp(log_p + reached) for log_p, reached in pairs))


def assert_slopes(found, p, value, rng, rtol=1e-4, atol=1e-5):
    """Compare gradients by weight with the slopes of value(p) in random directions."""
    assert found.keys() == p.keys()
    for name, weights in p.items():
        direction = rng.standard_normal(weights.shape)
        up, down = (
            value({**p, name: weights + side * 1e-5 * direction}) for side in (1, -1)
        )
        along, slope = (found[name] * direction).sum(), (up - down) / 2e-5
        np.testing.assert_allclose(along, slope, rtol, atol, err_msg=name)
