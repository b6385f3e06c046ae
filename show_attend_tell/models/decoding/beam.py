"""Search captions with a batched beam of live and finished hypotheses."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
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

_BLOCK = 64  # values of a block, see `largest`


class _Beams(NamedTuple):
    """V hypotheses per photo; an empty slot has log_probs -inf."""

    log_probs: Tensor  # (B, V)
    scores: Tensor  # (B, V), the key by which the best are kept
    lengths: Tensor  # (B, V) int32
    # (B, V, T, 3) float32: id, log p and live beam of each word. One tensor is gathered
    # in a third of the operations of three; float32 is exact for ids below 2 ** 24.
    words: Tensor


class _Search(NamedTuple):
    """The state of the search after t words."""

    t: Tensor  # () int32
    tokens: Tensor  # (B, W) int32, last words of the live beams
    state: dict  # leaves (B, W, ...), the model's state of the live beams
    live: _Beams  # V = W, best first
    finished: _Beams  # V = W, best first; never extended
    extras: dict  # leaves (B, W, T, ...) by live beam of each word, never reordered


class _Rules(NamedTuple):
    """The constants of a search."""

    end_id: int
    beam: int
    powers: np.ndarray  # (T,), length ** p of the lengths 1 to T


def beam_search(
    step: Step,
    initial_state: dict,
    batch_size: int | Tensor,
    *,
    start_id: int,
    end_id: int,
    pad_id: int,
    beam: int,
    max_words: int,
    length_normalisation: float = 0.0,
    forbidden: Sequence[int] = (),
) -> Hypotheses:
    """Search the most probable captions with W live hypotheses per photo.

    Among the W best continuations of the live hypotheses, the ended hypotheses compete
    by score for W finished slots; the best W continuations that do not end stay live.
    The search stops at ``max_words``, or as soon as no live hypothesis of any photo can
    enter a finished slot: log p only falls and length only grows, so a live hypothesis
    will score at most ``log p / max_words ** length_normalisation``.

    A photo without a finished hypothesis within ``max_words`` gets its best live
    hypotheses, not finished; otherwise it gets finished ones only. With a single slot
    there is nothing to rank, so a beam of one stops at its first end whatever the
    normalisation, and is greedy. Of equal candidates the better beam's wins, then the
    smaller id.

    Args:
        step: returns the log-probabilities of the next word, see the package.
        initial_state: dict of tensors (B, ...), without the axis of hypotheses.
        batch_size: B, also for a model without state.
        start_id: id of the first step's input.
        end_id: id that ends a caption.
        pad_id: id written after a caption's last word.
        beam: W, at least 1.
        max_words: T, the maximum length with the end word; at least 1.
        length_normalisation: exponent p >= 0 of ``log p / length ** p``; 0 is the sum.
        forbidden: ids never written. Their log-probability becomes -inf; the others are
            not renormalised, so that ``log_probs`` remain the model's.
    """
    lengths = np.arange(1, max_words + 1, dtype="float32")
    powers = lengths**length_normalisation
    # A single slot has nothing to rank: without division it stops at its first end.
    ranking = powers if beam > 1 else np.ones_like(powers)
    rules = _Rules(end_id, beam, ranking)

    tokens, state = first_inputs(initial_state, batch_size, start_id)  # (B, 1)
    step = functools.partial(call, step, forbidden=forbidden)
    # The first word is chosen before the loop: its step runs for one hypothesis, and
    # its outputs give the shapes of all states of the loop.
    outputs = step(tokens, state)  # leaves (B, 1, ...)
    # (B, 1, ...) -> (B, W, ...)
    outputs = keras.tree.map_structure(lambda x: ops.repeat(x, beam, axis=1), outputs)
    search = _advance(_start(batch_size, outputs, rules), outputs, rules)
    # A loop over one variable, a search.
    (search,) = ops.while_loop(
        lambda search: _may_improve(search, rules),
        lambda search: (_advance(search, step(search.tokens, search.state), rules),),
        (search,),
        maximum_iterations=max_words - 1,
    )
    return _collect(search, powers, pad_id)


def _start(batch_size, outputs, rules: _Rules) -> _Search:
    """Return a search with one live beam, the empty caption, and nothing finished."""
    B = batch_size
    W = rules.beam
    T = len(rules.powers)
    _, state, extras = outputs
    minus_infinity = ops.full((B, W), -np.inf, "float32")
    zeros = ops.zeros((B, W), "int32")
    empty = _Beams(
        log_probs=minus_infinity,
        scores=minus_infinity,
        lengths=zeros,
        words=ops.zeros((B, W, T, 3), "float32"),
    )
    # The W beams are copies of one: with more than one alive, each first word would be
    # found W times.
    first = np.where(np.arange(W) == 0, 0, -np.inf).astype("float32")  # (W,)
    return _Search(
        t=ops.zeros((), "int32"),
        tokens=zeros,  # never read: `_advance` replaces them
        state=state,
        # The maximum broadcasts (W,) to (B, W), whose B may be a tensor.
        live=empty._replace(log_probs=ops.maximum(minus_infinity, first)),
        finished=empty,
        # (B, W, ...) -> (B, W, T, ...)
        extras=keras.tree.map_structure(lambda x: new_record(x, T), extras),
    )


def _advance(search: _Search, outputs, rules: _Rules) -> _Search:
    """Add one word to the live beams and prune: the W best stay live or finished."""
    t = search.t
    W = rules.beam
    log_probs, state, extras = outputs  # (B, W, K), leaves (B, W, ...)
    # beams with V = 2 W, best first; parents and words (B, 2 W)
    grown, parents, words = _grow(search.live, log_probs, t)

    # Only an end among the W best competes; every other score is -inf.
    ends = ops.equal(words, rules.end_id)  # (B, 2 W)
    ending = ops.logical_and(ends, np.arange(2 * W) < W)
    ended = ops.where(ending, grown.log_probs, -np.inf)
    ended = grown._replace(log_probs=ended, scores=ended / ops.take(rules.powers, t))
    # Finished ones first: an equal score that comes later displaces nothing.
    contenders = keras.tree.map_structure(
        # (B, W, ...), (B, 2 W, ...) -> (B, 3 W, ...)
        lambda old, new: ops.concatenate([old, new], axis=1),
        search.finished,
        ended,
    )
    finished, _ = _best(contenders, W)  # V = 3 W -> V = W

    # Prune: the W best that do not end stay live.
    unended = ops.where(ends, -np.inf, grown.log_probs)  # (B, 2 W)
    # V = 2 W -> V = W; kept (B, W) in [0, 2 W)
    live, kept = _best(grown._replace(log_probs=unended, scores=unended), W)
    parents, words = pick((parents, words), kept)  # (B, 2 W) -> (B, W)
    return _Search(
        t=t + 1,
        tokens=words,
        # The state follows its beam, (B, W, ...) reordered along W.
        state=pick(state, parents),
        live=live,
        finished=finished,
        # alpha, (B, W, T, L), would be costly to reorder at every word. Each word keeps
        # the slot of its beam, and `_follow` gathers them once at the end.
        # (B, W, ...) written at word t of (B, W, T, ...)
        extras=keras.tree.map_structure(
            lambda buffer, x: record(buffer, x, t), search.extras, extras
        ),
    )


def _grow(live: _Beams, log_probs, t) -> tuple[_Beams, Tensor, Tensor]:
    """Return the 2 W best continuations, their beams and their words, best first.

    A beam ends in one way only, so at most W of them end and at least W do not.
    """
    W, K = log_probs.shape[1:]
    totals = ops.expand_dims(live.log_probs, 2) + log_probs  # (B, W, 1) + (B, W, K)
    totals = ops.reshape(totals, (-1, W * K))  # (B, W, K) -> (B, W K)
    totals, index = largest(totals, 2 * W)  # (B, W K) -> (B, 2 W)
    # (B, 2 W)
    parents = index // K
    words = index % K
    added = pick(ops.reshape(log_probs, (-1, W * K)), index)  # (B, W K) -> (B, 2 W)
    lengths, written = pick((live.lengths, live.words), parents)  # V = W -> V = 2 W
    # In the order in which `_collect` reads them: id, log p, live beam.
    # three of (B, 2 W) -> (B, 2 W, 3)
    word = ops.stack(
        [ops.cast(words, "float32"), added, ops.cast(parents, "float32")], axis=-1
    )
    grown = _Beams(totals, totals, lengths + 1, record(written, word, t))
    return grown, parents, words


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values and their indices, of equal ones the first: top_k.

    They are in the `count` blocks with the largest maxima, of equal ones the first:
    each of these has a value that comes before every value of the others. XLA looks
    through few values far sooner than through all.

    Args:
        values: (B, N).
        count: at most N.

    Returns:
        Twice (B, count), largest first.
    """
    N = values.shape[1]
    # With fewer values the chosen blocks would hold more than a quarter of them.
    if N < 4 * count * _BLOCK:
        return ops.top_k(values, count)
    missing = -N % _BLOCK
    # Of -inf, at the end: of equal values the first are chosen, so no padding is.
    if missing:  # (B, N) -> (B, blocks _BLOCK)
        values = ops.pad(values, [(0, 0), (0, missing)], constant_values=-np.inf)
    blocks = ops.reshape(values, (-1, (N + missing) // _BLOCK, _BLOCK))
    _, chosen = ops.top_k(ops.max(blocks, axis=2), count)  # (B, blocks) -> (B, count)
    chosen = ops.sort(chosen, axis=1)  # keeps the order of equal values
    best = pick(blocks, chosen)  # (B, count, _BLOCK)
    best, index = ops.top_k(ops.reshape(best, (-1, count * _BLOCK)), count)
    first = pick(chosen, index // _BLOCK) * _BLOCK  # (B, count)
    return best, first + index % _BLOCK


def _best(beams: _Beams, width: int) -> tuple[_Beams, Tensor]:
    """Return the beams of the highest scores, best first, and their indices."""
    _, index = ops.top_k(beams.scores, width)  # (B, V) -> (B, width)
    return pick(beams, index), index


def _may_improve(search: _Search, rules: _Rules) -> Tensor:
    """Return whether a live beam of any photo can still enter a finished slot."""
    # log p is negative, so that the largest divisor gives the highest score. A photo
    # without live beams has -inf, which exceeds no score.
    reachable = search.live.log_probs[:, 0] / rules.powers[-1]  # (B, W) -> (B,)
    return ops.any(search.finished.scores[:, -1] < reachable)  # (B,) -> ()


def _collect(search: _Search, powers: np.ndarray, pad_id: int) -> Hypotheses:
    """Return each photo's finished hypotheses, or its live ones where it has none."""
    has_finished = search.finished.log_probs[:, :1] > -np.inf  # (B, 1)
    beams = keras.tree.map_structure(
        # (B, 1) -> (B, 1, ...)
        lambda a, b: ops.where(
            ops.reshape(has_finished, (-1,) + (1,) * (len(a.shape) - 1)), a, b
        ),
        search.finished,
        search.live,
    )
    exists = beams.log_probs > -np.inf  # (B, W)
    lengths = ops.where(exists, beams.lengths, 0)
    # (B, W, T, 3) -> (B, W, T)
    tokens = ops.cast(beams.words[..., 0], "int32")
    path = ops.cast(beams.words[..., 2], "int32")
    extras = {name: _follow(x, path) for name, x in search.extras.items()}
    # Scores are by the length, whatever ranked the beams. An empty slot has length 0,
    # whose divisor is that of 1.
    return Hypotheses(
        tokens=clear_after(tokens, lengths, pad_id),
        lengths=lengths,
        log_probs=beams.log_probs,
        scores=beams.log_probs / ops.take(powers, ops.maximum(lengths, 1) - 1),
        word_log_probs=clear_after(beams.words[..., 1], lengths),
        alpha=clear_after(extras["alpha"], lengths),
        beta=clear_after(extras["beta"], lengths),
        locations=clear_after(extras["locations"], lengths, -1),
        finished=ops.logical_and(exists, has_finished),
    )


def _follow(x: Tensor, path: Tensor) -> Tensor:
    """Return the extras of the words of each caption.

    Args:
        x: extras by live beam and word, (B, W, T, ...).
        path: the live beam that wrote each word, (B, W, T).

    Returns:
        (B, W, T, ...).
    """
    W, T = path.shape[1:]
    flat = ops.reshape(x, (-1, W * T, *x.shape[3:]))  # (B, W, T, ...) -> (B, W T, ...)
    # Row of a live beam and word t among the W T rows of a photo.
    index = path * T + ops.arange(T, dtype="int32")  # (B, W, T)
    picked = pick(flat, ops.reshape(index, (-1, W * T)))  # (B, W T, ...)
    return ops.reshape(picked, (-1, W, T, *x.shape[3:]))  # -> (B, W, T, ...)
