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

:mod:`models.decoding.beam` and :mod:`models.decoding.sampling` are built from
``keras.ops``; they run eagerly, and compiled they are one graph.
:mod:`reference.beam` has the same in NumPy.
"""
