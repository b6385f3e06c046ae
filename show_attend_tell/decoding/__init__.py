"""Write captions with a step function: greedily, by sampling, or by beam search.

Nothing here knows the model. A *step* takes the last words of W hypotheses for each of
B photos and tells what comes next::

    step(tokens (B, W) int32, state) -> log_probs (B, W, K) float32, state, extras

``state`` is what the model carries from word to word; ``extras`` is what it tells about
the word being written: ``alpha`` (B, W, L), the attention weights, ``beta`` (B, W), the
gate, and ``locations`` (B, W) int32, the one location looked at or -1. Both are dicts
of tensors with leading axes (B, W). What belongs to a photo alone, such as its
annotations, stays inside the step and is never copied for each hypothesis. A step must
accept any W: the first word is computed for one hypothesis.

Everything is made of ``keras.ops``; it runs eagerly, and compiled it is one graph.
"""

from show_attend_tell.decoding.beam import beam_search
from show_attend_tell.decoding.hypotheses import Hypotheses, Step
from show_attend_tell.decoding.sampling import greedy, sample

__all__ = ["Hypotheses", "Step", "beam_search", "greedy", "sample"]
