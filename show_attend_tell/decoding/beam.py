"""Batched beam search with live and finished hypotheses."""

from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from show_attend_tell.decoding.hypotheses import (
    Hypotheses,
    Step,
    Tensor,
    call,
    clear_behind,
    first_inputs,
    new_record,
    pick,
    record,
    require_at_least,
)


class _Beams(NamedTuple):
    """V hypotheses per photo; one with log_probs -inf is an empty place."""

    log_probs: Tensor  # (B, V)
    scores: Tensor  # (B, V), by which the best are kept
    lengths: Tensor  # (B, V) int32
    tokens: Tensor  # (B, V, T) int32
    word_log_probs: Tensor  # (B, V, T)
    path: Tensor  # (B, V, T) int32, the live beam that wrote each word


class _Search(NamedTuple):
    """The state of the search after t words."""

    t: Tensor  # () int32
    tokens: Tensor  # (B, W) int32, last words of the live beams
    state: dict  # leaves (B, W, ...), the model's state of the live beams
    live: _Beams  # V = W, best first
    finished: _Beams  # V = W, best first; never extended
    extras: dict  # leaves (B, W, T, ...), as the live beams told them, in place


class _Rules(NamedTuple):
    """What does not change during the search."""

    end_id: int
    forbidden: tuple[int, ...]
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

    Of the W best continuations of the live hypotheses those that end compete, by score,
    for W finished places; the best W continuations that do not end live on. The search
    stops at ``max_words``, or as soon as no live hypothesis of any photo can take a
    finished place any more: log p only falls and length only grows, so a live
    hypothesis will score at most ``log p / max_words ** length_normalisation``.

    A photo for which nothing ended within ``max_words`` gets its best live hypotheses,
    not finished; otherwise it gets finished ones only. With a single place there is
    nothing to rank, so a beam of one stops at its first end whatever the normalisation,
    and is greedy. Of equal candidates the better beam's wins, then the smaller id.

    Args:
        step: tells the log-probabilities of the next word, see the package.
        initial_state: dict of tensors (B, ...), without the axis of hypotheses.
        batch_size: B, also for a model without state.
        start_id: id given to the first step.
        end_id: id that ends a caption.
        pad_id: id written behind a caption's last word.
        beam: W, at least 1.
        max_words: T, the most words of a caption, the end word included; at least 1.
        length_normalisation: exponent p >= 0 of ``log p / length ** p``; 0 is the sum.
        forbidden: ids never written. Their log-probability becomes -inf; the others are
            not renormalised, so that ``log_probs`` remain the model's.

    Raises:
        ValueError: ``beam``, ``max_words`` or ``length_normalisation`` is too small.
    """
    require_at_least("beam", beam, 1, "1 is greedy")
    require_at_least("max_words", max_words, 1, "raise it")
    require_at_least("length_normalisation", length_normalisation, 0, "0 is the sum")
    lengths = np.arange(1, max_words + 1, dtype="float32")
    powers = lengths**length_normalisation
    ranking = powers if beam > 1 else np.ones_like(powers)
    rules = _Rules(end_id, tuple(forbidden), beam, ranking)

    tokens, state = first_inputs(initial_state, batch_size, start_id)
    outputs = call(step, tokens, state, rules.forbidden)
    outputs = keras.tree.map_structure(lambda x: ops.repeat(x, beam, axis=1), outputs)
    search = _advance(_start(batch_size, outputs, rules), outputs, rules)
    (search,) = ops.while_loop(
        lambda search: _may_improve(search, rules),
        lambda search: (_continue(step, search, rules),),
        (search,),
        maximum_iterations=max_words - 1,
    )
    return _collect(search, powers, pad_id)


def _start(batch_size, outputs, rules: _Rules) -> _Search:
    """Return a search with one live beam, the empty caption, and nothing finished."""
    W, T = rules.beam, len(rules.powers)
    _, state, extras = outputs
    minus_infinity = ops.full((batch_size, W), -np.inf, "float32")
    integers = ops.zeros((batch_size, W, T), "int32")
    nothing = _Beams(
        log_probs=minus_infinity,
        scores=minus_infinity,
        lengths=integers[:, :, 0],
        tokens=integers,
        word_log_probs=ops.zeros((batch_size, W, T), "float32"),
        path=integers,
    )
    first = np.where(np.arange(W) == 0, 0, -np.inf).astype("float32")
    return _Search(
        t=ops.zeros((), "int32"),
        tokens=integers[:, :, 0],
        state=state,
        live=nothing._replace(log_probs=ops.maximum(minus_infinity, first)),
        finished=nothing,
        extras=keras.tree.map_structure(lambda x: new_record(x, T), extras),
    )


def _continue(step: Step, search: _Search, rules: _Rules) -> _Search:
    outputs = call(step, search.tokens, search.state, rules.forbidden)
    return _advance(search, outputs, rules)


def _advance(search: _Search, outputs, rules: _Rules) -> _Search:
    """Add one word to the live beams; those that end compete for finished places."""
    log_probs, state, extras = outputs
    t, W = search.t, rules.beam
    grown, parents, words = _grow(search.live, log_probs, t)  # 2 W, best first

    ends = ops.equal(words, rules.end_id)
    ending = ops.logical_and(ends, np.arange(2 * W) < W)
    ended = ops.where(ending, grown.log_probs, -np.inf)
    ended = grown._replace(log_probs=ended, scores=ended / ops.take(rules.powers, t))
    # Finished ones first: an equal score that comes later displaces nothing.
    contenders = keras.tree.map_structure(
        lambda old, new: ops.concatenate([old, new], axis=1), search.finished, ended
    )
    finished, _ = _best(contenders, W)

    going = ops.where(ends, -np.inf, grown.log_probs)
    live, kept = _best(grown._replace(log_probs=going, scores=going), W)
    parents = pick(parents, kept)
    return _Search(
        t=t + 1,
        tokens=pick(words, kept),
        state=keras.tree.map_structure(lambda x: pick(x, parents), state),
        live=live,
        finished=finished,
        extras=keras.tree.map_structure(
            lambda buffer, x: record(buffer, x, t), search.extras, extras
        ),
    )


def _grow(live: _Beams, log_probs, t) -> tuple[_Beams, Tensor, Tensor]:
    """Return the 2 W best continuations, their beams and their words, best first.

    A beam ends in one way only, so at most W of them end and at least W do not.
    """
    W, K = log_probs.shape[1:]
    totals = ops.expand_dims(live.log_probs, 2) + log_probs  # (B, W, K)
    totals, index = ops.top_k(ops.reshape(totals, (-1, W * K)), 2 * W)
    parents, words = index // K, index % K  # (B, 2 W)
    added = pick(ops.reshape(log_probs, (-1, W * K)), index)
    grown = keras.tree.map_structure(lambda x: pick(x, parents), live)
    grown = _Beams(
        log_probs=totals,
        scores=totals,
        lengths=grown.lengths + 1,
        tokens=record(grown.tokens, words, t),
        word_log_probs=record(grown.word_log_probs, added, t),
        path=record(grown.path, parents, t),
    )
    return grown, parents, words


def _best(beams: _Beams, width: int) -> tuple[_Beams, Tensor]:
    """Return the beams of the highest scores, best first, and their places."""
    _, index = ops.top_k(beams.scores, width)
    return keras.tree.map_structure(lambda x: pick(x, index), beams), index


def _may_improve(search: _Search, rules: _Rules) -> Tensor:
    """Whether a live beam of any photo can still take a finished place."""
    reachable = search.live.log_probs[:, 0] / rules.powers[-1]
    return ops.any(search.finished.scores[:, -1] < reachable)


def _collect(search: _Search, powers: np.ndarray, pad_id: int) -> Hypotheses:
    """Take each photo's finished hypotheses, or its live ones where it has none."""
    has_finished = search.finished.log_probs[:, :1] > -np.inf  # (B, 1)
    beams = keras.tree.map_structure(
        lambda a, b: ops.where(
            ops.reshape(has_finished, (-1,) + (1,) * (len(a.shape) - 1)), a, b
        ),
        search.finished,
        search.live,
    )
    exists = beams.log_probs > -np.inf
    lengths = ops.where(exists, beams.lengths, 0)
    extras = {name: _follow(x, beams.path) for name, x in search.extras.items()}
    return Hypotheses(
        tokens=clear_behind(beams.tokens, lengths, pad_id),
        lengths=lengths,
        log_probs=beams.log_probs,
        scores=beams.log_probs / ops.take(powers, ops.maximum(lengths, 1) - 1),
        word_log_probs=clear_behind(beams.word_log_probs, lengths),
        alpha=clear_behind(extras["alpha"], lengths),
        beta=clear_behind(extras["beta"], lengths),
        locations=clear_behind(extras["locations"], lengths, -1),
        finished=ops.logical_and(exists, has_finished),
    )


def _follow(x: Tensor, path: Tensor) -> Tensor:
    """Return what the beams of ``path`` (B, W, T) told, out of ``x`` (B, W, T, ...)."""
    W, T = path.shape[1:]
    flat = ops.reshape(x, (-1, W * T, *x.shape[3:]))
    index = path * T + ops.arange(T, dtype="int32")
    picked = pick(flat, ops.reshape(index, (-1, W * T)))
    return ops.reshape(picked, (-1, W, T, *x.shape[3:]))
