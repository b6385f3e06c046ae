"""Compute losses, rewards and bounds in NumPy, one caption at a time and in float64.

Written from the paper alone (arXiv:1502.03044v3). The decoder is
:mod:`show_attend_tell.reference.lstm`.
"""

import itertools

import numpy as np

from show_attend_tell.reference.beam import log_softmax
from show_attend_tell.reference.lstm import read as read_caption
from show_attend_tell.reference.lstm import sigmoid


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
        read: outputs of :func:`reference.lstm.read`.
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
        read = read_caption(p, settings, a, inputs, locations=s)
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


def convolve(x, kernel):
    """Return the sums over windows of 3 x 3 pixels, with zeros around the pictures."""
    padded = np.pad(np.asarray(x, float), [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("bhwcij,ijck->bhwk", windows, np.asarray(kernel, float))


def lstm_update(gates, c):
    """Return h_t and c_t of an LSTM from its four gates i, f, o, g, Eq. (1)-(3)."""
    i, f, o, g = np.split(gates, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c
