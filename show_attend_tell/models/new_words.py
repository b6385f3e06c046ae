"""Extend the weights of a captioner to words that it was not trained on.

The weights of the old words stay as they are, so their logits do too. A new word w has
a row of E and a column of L_o near the means of the old words', and the bias ::

    b_w = log f_w + mean over old words v of (b_v - log f_v)

where f is the frequency in the training captions: among words whose columns are alike,
it is as probable as it is frequent.
"""

from collections.abc import Mapping

import numpy as np

from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary

NOISE = 0.1  # deviation from the mean, in standard deviations of the old words
# The axis of the words in each weight that has one.
WORD_AXES = {"embedding": 0, "l_o": 1, "l_o_b": 0}


def extend_weight(
    name: str,
    values: np.ndarray,
    vocabulary: Vocabulary,
    counts: Mapping[str, int],
    seed: int = 0,
) -> np.ndarray:
    """Return a weight for a vocabulary of which it has the first words.

    Args:
        name: name of the weight; only those of :data:`WORD_AXES` are changed.
        values: the weight, for the first words of the vocabulary.
        vocabulary: the old words, then the new ones.
        counts: word -> number of times that it occurs in the training captions.
        seed: seed of the noise.
    """
    axis = WORD_AXES.get(name)
    if axis is None or values.shape[axis] == len(vocabulary):
        return values
    old = values.shape[axis]
    if name == "l_o_b":
        new = _biases(values, vocabulary, counts)  # (new words,)
    else:
        rows = np.moveaxis(values, axis, 0)[len(SPECIAL) :]  # (old words, m)
        rng = np.random.default_rng([seed, axis])
        noise = rng.standard_normal((len(vocabulary) - old, rows.shape[1]))
        rows = rows.mean(axis=0) + NOISE * rows.std(axis=0) * noise
        new = np.moveaxis(rows, 0, axis)  # (new words, m) or (m, new words)
    return np.concatenate([values, new.astype(values.dtype)], axis=axis)


def _biases(
    biases: np.ndarray, vocabulary: Vocabulary, counts: Mapping[str, int]
) -> np.ndarray:
    """Return the biases of the new words, (new words,)."""
    words = vocabulary.words[len(SPECIAL) :]
    log_f = np.log([max(counts.get(word, 0), 0.5) for word in words])  # 0.5 if absent
    known = biases[len(SPECIAL) :]  # (old words,)
    shared = np.array([word in counts for word in words[: len(known)]], bool)
    if not shared.any():
        shared[:] = True
    offset = np.mean(known[shared] - log_f[: len(known)][shared])
    return log_f[len(known) :] + offset
