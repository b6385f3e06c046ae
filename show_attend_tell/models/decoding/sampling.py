"""Write captions of photos word by word, by greedy choice or by sampling."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
from keras import ops

from show_attend_tell.models.decoding.hypotheses import (
    Step,
    Tensor,
    call,
    clear_after,
    first_inputs,
    new_record,
    pick,
    record,
)
from show_attend_tell.reference.hypotheses import Hypotheses


class _Draft(NamedTuple):
    """State of the loop: a caption of each photo after t words, W = 1."""

    t: Tensor  # () int32
    last: Tensor  # (B, W) int32, last words
    state: dict  # leaves (B, W, ...)
    finished: Tensor  # (B, W) bool
    lengths: Tensor  # (B, W) int32
    tokens: Tensor  # (B, W, T) int32
    word_log_probs: Tensor  # (B, W, T)
    extras: dict  # leaves (B, W, T, ...)


def greedy(
    step: Step,
    initial_state: dict,
    batch_size: int | Tensor,
    *,
    start_id: int,
    end_id: int,
    pad_id: int,
    max_words: int,
    forbidden: Sequence[int] = (),
) -> Hypotheses:
    """Write the most probable word at every step, of equal ones the smallest id.

    The arguments are those of :func:`models.decoding.beam.beam_search`. Returns
    hypotheses with W = 1 whose scores are their log-probabilities.
    """
    tokens, state = first_inputs(initial_state, batch_size, start_id)
    return _write(
        functools.partial(call, step, forbidden=forbidden),
        lambda log_probs, t: ops.argmax(log_probs, axis=-1),
        tokens,
        state,
        end_id=end_id,
        pad_id=pad_id,
        max_words=max_words,
    )


def sample(
    step: Step,
    initial_state: dict,
    noise: Tensor,
    *,
    start_id: int,
    end_id: int,
    pad_id: int,
    temperature: float | Tensor = 1.0,
    forbidden: Sequence[int] = (),
) -> Hypotheses:
    """Sample every word with probability proportional to ``p ** (1 / temperature)``.

    The cumulative distribution is inverted at one uniform number per word, so that a
    caption depends on its own row of noise alone, and one compiled graph serves every
    seed. The arguments are those of :func:`models.decoding.beam.beam_search` and
    two more: ``noise``, uniform numbers in [0, 1), (B, T), T being the maximum length;
    and ``temperature``, above 0, which towards 0 gives :func:`greedy`. Words that are
    not forbidden are renormalised. Returns hypotheses with W = 1 whose ``log_probs``
    and ``scores`` are the model's own, at temperature 1.
    """
    batch_size, max_words = ops.shape(noise)
    noise = ops.expand_dims(noise, 1)  # (B, T) -> (B, 1, T)

    def choose(log_probs, t):
        # (B, 1, T) -> (B, 1, 1)
        u = ops.take(noise, ops.reshape(t, (1,)), axis=2)
        p = ops.softmax(log_probs / temperature, axis=-1)  # (B, 1, K)
        return sample_index(p, u)  # (B, 1)

    tokens, state = first_inputs(initial_state, batch_size, start_id)
    return _write(
        functools.partial(call, step, forbidden=forbidden),
        choose,
        tokens,
        state,
        end_id=end_id,
        pad_id=pad_id,
        max_words=max_words,
    )


def sample_index(p, u):
    """Return the first entry whose cumulative probability exceeds ``u``.

    A sample depends on its own uniform number alone. An entry of probability 0 is never
    returned: its sum equals the sum of the entry before. Sums are taken in float32; in
    half precision the sums of many small numbers would be wrong.

    Args:
        p: probabilities, (..., K), of any float type.
        u: uniform numbers in [0, 1), (..., 1).

    Returns:
        (...) int32 in [0, K).
    """
    K = p.shape[-1]
    p = ops.cast(p, "float32")
    u = ops.cast(u, "float32")
    sums = ops.cumsum(p, axis=-1)  # (..., K)
    # (..., K) -> (...): the number of sums that do not exceed u, times the last sum,
    # which rounding leaves beside 1. `<=` passes over leading entries of probability 0
    # where u is 0.
    index = ops.sum(ops.cast(sums <= u * sums[..., -1:], "int32"), axis=-1)
    # Rounding may lift u * sum to the sum itself; the argmax is returned then.
    return ops.where(index < K, index, ops.cast(ops.argmax(p, axis=-1), "int32"))


def _write(
    step: Step,
    choose: Callable,
    tokens: Tensor,
    state: dict,
    *,
    end_id: int,
    pad_id: int,
    max_words: int,
) -> Hypotheses:
    """Write captions with the words that ``choose`` selects.

    Args:
        step: see the package.
        choose: (log_probs (B, 1, K), t) -> the ids of the words at step t, (B, 1).
        tokens: inputs of the first step, (B, 1).
        state: its state, leaves (B, 1, ...).
        end_id: see :func:`greedy`, also for `pad_id` and `max_words`.
        pad_id: see there.
        max_words: see there.
    """
    outputs = step(tokens, state)
    log_probs, _, extras = outputs
    empty = _Draft(
        t=ops.zeros((), "int32"),
        last=tokens,
        state=state,  # replaced by the first step's
        finished=ops.zeros_like(tokens, dtype="bool"),
        lengths=ops.zeros_like(tokens),
        tokens=new_record(tokens, max_words),
        word_log_probs=new_record(log_probs[..., 0], max_words),
        extras=keras.tree.map_structure(lambda x: new_record(x, max_words), extras),
    )
    # The first word is written before the loop, as its extras give the shapes of all.
    draft = _append(empty, outputs, choose, end_id)
    # A loop over one variable, a draft.
    (draft,) = ops.while_loop(
        lambda draft: ops.logical_not(ops.all(draft.finished)),
        lambda draft: (_append(draft, step(draft.last, draft.state), choose, end_id),),
        (draft,),
        maximum_iterations=max_words - 1,
    )
    return _collect(draft, pad_id)


def _append(draft: _Draft, outputs, choose: Callable, end_id: int) -> _Draft:
    """Add the chosen word to every caption that has not ended."""
    log_probs, state, extras = outputs  # (B, 1, K), leaves (B, 1, ...)
    word = ops.cast(choose(log_probs, draft.t), "int32")  # (B, 1, K) -> (B, 1)
    added = pick(ops.squeeze(log_probs, 1), word)  # (B, K) -> (B, 1)
    unfinished = ops.cast(ops.logical_not(draft.finished), "int32")  # (B, W)
    # A caption that has ended is advanced beside those of other photos; `_collect`
    # clears what follows its end.
    return _Draft(
        t=draft.t + 1,
        last=word,
        state=state,
        finished=ops.logical_or(draft.finished, ops.equal(word, end_id)),
        lengths=draft.lengths + unfinished,
        tokens=record(draft.tokens, word, draft.t),
        word_log_probs=record(draft.word_log_probs, added, draft.t),
        extras=keras.tree.map_structure(
            lambda buffer, x: record(buffer, x, draft.t), draft.extras, extras
        ),
    )


def _collect(draft: _Draft, pad_id: int) -> Hypotheses:
    """Return the captions with everything after their ends cleared."""
    lengths = draft.lengths
    word_log_probs = clear_after(draft.word_log_probs, lengths)
    log_probs = ops.sum(word_log_probs, axis=-1)  # (B, W, T) -> (B, W)
    return Hypotheses(
        tokens=clear_after(draft.tokens, lengths, pad_id),
        lengths=lengths,
        log_probs=log_probs,
        scores=log_probs,
        word_log_probs=word_log_probs,
        alpha=clear_after(draft.extras["alpha"], lengths),
        beta=clear_after(draft.extras["beta"], lengths),
        locations=clear_after(draft.extras["locations"], lengths, -1),
        finished=draft.finished,
    )
