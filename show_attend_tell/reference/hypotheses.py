"""Define what the searches of both engines return."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from show_attend_tell.data.noun_phrases import repeats_noun
from show_attend_tell.data.vocabulary import END


class Hypotheses(NamedTuple):
    """W captions for each of B photos, best first, of at most T words.

    Inside a compiled search of Keras the fields are tensors.

    After a caption's length ``word_log_probs``, ``alpha`` and ``beta`` are 0.

    Attributes:
        tokens: (B, W, T) int32, without the start word; the end word, then padding.
        lengths: (B, W) int32, words including the end word.
        log_probs: (B, W), log p(caption) in nats. Where a photo has fewer than W
            captions the last ones have -inf, length 0 and only padding.
        scores: (B, W), ``log_probs / lengths ** length_normalisation``, descending.
        word_log_probs: (B, W, T), log p of each word; they sum to ``log_probs``.
        alpha: (B, W, T, L), attention weights of each word.
        beta: (B, W, T), gate of each word.
        locations: (B, W, T) int32, the location selected for each word; -1 where all
            were averaged, and after the length.
        finished: (B, W) bool, False where ``max_words`` was reached before the end
            word.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    log_probs: np.ndarray
    scores: np.ndarray
    word_log_probs: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    locations: np.ndarray
    finished: np.ndarray

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> "Hypotheses":
        """Return hypotheses whose fields are a function of these."""
        return Hypotheses(*(function(field) for field in self))

    def reordered(self, order: np.ndarray) -> "Hypotheses":
        """Return the hypotheses of each photo in another order, (B, W) indices."""
        photos = np.arange(len(order))[:, None]
        return self.map(lambda field: np.asarray(field)[photos, order])


def repeated_nouns_last(hypotheses: Hypotheses, kinds: np.ndarray) -> Hypotheses:
    """Move captions that repeat a noun behind the others of their photo.

    Args:
        hypotheses: of NumPy arrays, best first.
        kinds: the kind of each word by its id, (K,), see :mod:`data.noun_phrases`.

    Returns:
        The hypotheses, otherwise in the same order; absent captions remain last.
    """
    # 0 for a caption, 1 for one that repeats a noun, 2 for an absent one.
    groups = np.where(hypotheses.lengths > 0, 0, 2)  # (B, W)
    for row, captions in zip(groups, hypotheses.tokens.tolist(), strict=True):
        for w, caption in enumerate(captions):
            # Without padding, start and end, whose ids come first.
            words = [word for word in caption if word > END]
            if repeats_noun(words, kinds[words].tolist()):
                row[w] = 1
    if not (groups == 1).any():
        return hypotheses
    return hypotheses.reordered(np.argsort(groups, axis=1, kind="stable"))
