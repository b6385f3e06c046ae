"""Decode captions with a step function: greedy, sampling or beam search.

The package is independent of the model. A *step* takes the last words of W hypotheses
for each of B photos and returns the distribution of the next word::

    step(tokens (B, W) int32, state) -> log_probs (B, W, K) float32, state, extras

``state`` is carried from word to word; ``extras`` describes the word being written:
``alpha`` (B, W, L), the attention weights, ``beta`` (B, W), the gate, and ``locations``
(B, W) int32, the selected location or -1. Both are dicts of tensors with leading axes
(B, W). Tensors that belong to a photo alone, such as its annotations, stay inside the
step and are never copied for each hypothesis. A step must accept any W: the first word
is computed for one hypothesis.

:mod:`decoding.beam` and :mod:`decoding.sampling` are built from ``keras.ops``; they run
eagerly, and compiled they are one graph. :mod:`reference.beam` has the same in NumPy.
"""

from typing import Any, NamedTuple


class Hypotheses(NamedTuple):
    """W captions for each of B photos, best first, of at most T words.

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

    tokens: Any
    lengths: Any
    log_probs: Any
    scores: Any
    word_log_probs: Any
    alpha: Any
    beta: Any
    locations: Any
    finished: Any
