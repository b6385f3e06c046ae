"""Start a captioner from the weights of another captioner.

The captioner may have words that the other model was not trained on. The weights of the
old words stay as they are, so their logits do too. A new word w has a row of E and a
column of L_o near the means of the old words', and the bias ::

    b_w = log f_w + mean over old words v of (b_v - log f_v)

where f is the frequency in the training captions: among words whose columns are alike,
it is as probable as it is frequent.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError

NOISE = 0.1  # deviation from the mean, in standard deviations of the old words
# The axis of the words in each weight that has one.
WORD_AXES = {"embedding": 0, "l_o": 1, "l_o_b": 0}


def copy_weights(
    path: str | Path,
    model: Captioner,
    counts: Mapping[str, int] | None = None,
    source: Captioner | None = None,
) -> Captioner:
    """Copy the weights of a model file into a captioner; return the file's captioner.

    A soft model can start a hard model, and a hard model a soft one: they differ by the
    baseline alone, which then starts at 0.

    Args:
        path: path of the model file.
        model: the captioner; its weights are replaced.
        counts: word -> number of times that it occurs in the training captions; the
            captioner may then have further words, after the words of the file.
        source: the captioner of the file, if it is already loaded.

    Raises:
        ModelFileError: the file cannot be loaded, or its words, encoder or weights
            differ from the captioner's.
    """
    source = source or load_captioner(path)
    old, words = len(source.vocabulary), model.vocabulary.words
    if source.vocabulary.words != words[:old] or (counts is None and old < len(words)):
        raise ModelFileError(
            f"{path}: its vocabulary is not that of the prepared data; start from a "
            "model trained on the same data"
        )
    if difference := identity_difference(
        source.encoder_identity, model.encoder_identity
    ):
        raise ModelFileError(
            f"{path}: it was trained on another encoder's features ({difference}); "
            "start from a model of the same encoder"
        )
    weights = [
        _shared_weights(m, other) for m, other in ((source, model), (model, source))
    ]
    copies = [
        extend_weight(w.name, np.asarray(w), model.vocabulary, counts or {})
        for w in weights[0]
    ]
    received = [(w.name, x.shape) for w, x in zip(weights[0], copies, strict=True)]
    expected = [(w.name, tuple(w.shape)) for w in weights[1]]
    for theirs, ours in itertools.zip_longest(received, expected):
        if theirs != ours:
            raise ModelFileError(
                f"{path}: its weights must have the shapes of the settings, {ours}. "
                f"Received: {theirs}; start from a model of the same widths and "
                "switches"
            )
    for value, ours in zip(copies, weights[1], strict=True):
        ours.assign(value)
    return source


def _shared_weights(model: Captioner, other: Captioner) -> list:
    """Return a model's weights, without a baseline that `other` lacks."""
    excluded = set()
    if model.hard_attention is not None and other.hard_attention is None:
        excluded = {w.path for w in model.hard_attention.weights}
    return [w for w in model.weights if w.path not in excluded]


def extend_weight(
    name: str,
    values: np.ndarray,
    vocabulary: Vocabulary,
    counts: Mapping[str, int],
) -> np.ndarray:
    """Extend a weight of the old words to a vocabulary that begins with them.

    Args:
        name: name of the weight; only weights of :data:`WORD_AXES` change.
        values: the weight.
        vocabulary: the old words, then the new words.
        counts: see :func:`copy_weights`.
    """
    axis = WORD_AXES.get(name)
    if axis is None or values.shape[axis] == len(vocabulary):
        return values
    old = values.shape[axis]
    if name == "l_o_b":
        new = _biases(values, vocabulary, counts)  # (new words,)
    else:
        rows = np.moveaxis(values, axis, 0)[len(SPECIAL) :]  # (old words, m)
        rng = np.random.default_rng([0, axis])
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
