"""Write captions of one photo with a step function: beam search, greedy and sampling.

A *step* takes the last words of W hypotheses and returns the distribution of the next::

    step(t, words (W,), state) -> log_probs (W, K), state, extras

``state`` is a list of dicts of arrays (W, ...). ``extras`` describes the word being
written: ``alpha`` (W, L), ``beta`` (W,) and ``locations`` (W,), the selected location
or -1. Results equal those of :mod:`show_attend_tell.models.decoding`, ties included.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from show_attend_tell.reference.decoder import State
from show_attend_tell.reference.hypotheses import Hypotheses

Records: TypeAlias = dict[str, np.ndarray]  # about written words, by name
# (t, words (W,), state) -> log_probs (W, K), state, extras
Step: TypeAlias = Callable[
    [int, np.ndarray, list[State]], tuple[np.ndarray, list[State], Records]
]


class _Caption(NamedTuple):
    """A finished hypothesis."""

    score: float  # log p / length ** p
    log_prob: float
    written: Records  # what `append` records, (t, ...) each


class Rules(NamedTuple):
    """The words with a meaning to the search."""

    start_id: int
    end_id: int
    pad_id: int
    forbidden: Sequence[int] = ()

    def call(
        self, step: Step, t: int, words: np.ndarray, state: list[State]
    ) -> tuple[np.ndarray, list[State], Records]:
        """Call the step; the log-probabilities of forbidden words become -inf."""
        log_probs, state, extras = step(t, words, state)
        # A copy, as the array is the step's.
        log_probs = np.array(log_probs, np.float32)
        log_probs[:, list(self.forbidden)] = -np.inf
        return log_probs, state, extras


def softmax(x: np.ndarray) -> np.ndarray:
    """Return exp(x) / sum exp(x) over the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    probabilities: np.ndarray = weights / weights.sum(axis=-1, keepdims=True)
    return probabilities


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Return x - log sum exp(x) over the last axis."""
    x = x - x.max(axis=-1, keepdims=True)
    log_probs: np.ndarray = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return log_probs


def sample_index(probabilities: np.ndarray, u: np.ndarray | float) -> np.ndarray:
    """Return the first entry (...) whose cumulative sum exceeds u sum(p), p (..., K).

    Rounding may lift u sum(p) to the sum itself; the argmax is returned then.
    """
    sums: np.ndarray = probabilities.cumsum(axis=-1)
    # `<=` passes over leading entries of probability 0 where u is 0.
    index: np.ndarray = (sums <= u * sums[..., -1:]).sum(axis=-1)
    last = index == probabilities.shape[-1]
    return np.where(last, probabilities.argmax(axis=-1), index)


def beam_search(
    step: Step,
    state: list[State],
    rules: Rules,
    *,
    beam: int,
    max_words: int,
    length_normalisation: float = 0.0,
) -> Hypotheses:
    """Search the most probable captions with W live hypotheses.

    Of the W best continuations those that end compete, by score, for W finished places;
    the W best that do not end stay live. The search stops as soon as no live hypothesis
    can enter a finished place any more: log p only falls and length only grows, so it
    will score at most ``log p / max_words ** length_normalisation``. Of equal
    candidates the better beam's wins, then the smaller id. Without a finished
    hypothesis the live ones are returned.

    Args:
        step: see the module.
        state: of the empty caption, W = 1.
        rules: the ids with a meaning.
        beam: W.
        max_words: T, with the end word.
        length_normalisation: exponent p of the score log p / length ** p.
    """
    W = beam
    powers = np.arange(1, max_words + 1, dtype=np.float32) ** length_normalisation
    # A beam of one is greedy: no other caption competes with it by length.
    ranking = powers if W > 1 else np.ones_like(powers)
    words = np.array([rules.start_id])
    # One hypothesis, the empty caption; the first word makes W of it.
    totals = np.zeros(1, np.float32)  # log p of the live hypotheses
    written: Records = {}
    finished: list[_Caption] = []
    for t in range(max_words):
        log_probs, state, extras = rules.call(step, t, words, state)
        candidates = (totals[:, None] + log_probs).ravel()  # (W, K) -> (W K,)
        # At most W of them end, one of each hypothesis, so that W stay live.
        index = largest(candidates, 2 * W)
        parents, words = np.divmod(index, log_probs.shape[1])  # (2 W,)
        totals = candidates[index]
        new = {"tokens": words, "word_log_probs": log_probs[parents, words]}
        new |= {name: x[parents] for name, x in extras.items()}
        written = append(pick(written, parents), new)
        ends = words == rules.end_id
        # An end that is not among the W best candidates does not compete.
        for k in np.flatnonzero(ends[:W]).tolist():
            score = float(totals[k] / ranking[t])
            finished.append(_Caption(score, float(totals[k]), pick(written, k)))
        finished = sorted(finished, key=lambda one: -one.score)[:W]  # stable
        # Candidates are best first, and so are those that stay.
        kept = np.flatnonzero(~ends)[:W]
        totals = totals[kept]
        words = words[kept]
        written = pick(written, kept)
        state = [pick(arrays, parents[kept]) for arrays in state]
        # Where no word but the end is possible.
        if not len(totals):
            break
        # The score of the best live hypothesis if it kept its log p up to `max_words`.
        reachable = totals[0] / ranking[-1]
        if len(finished) == W and finished[-1].score >= reachable:
            break
    captions = finished or [
        _Caption(0, float(total), pick(written, k)) for k, total in enumerate(totals)
    ]
    return _hypotheses(captions, W, powers, rules.pad_id, bool(finished))


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the largest finite values, of equal ones the first."""
    if count < len(values):
        # Linear in W K, where a sort of all is not. Every value equal to the least
        # stays, so that the stable sort below decides ties by index, as Keras' top_k
        # does.
        least = np.partition(values, -count)[-count]
        index = np.flatnonzero(values >= least)
    else:
        index = np.arange(len(values))
    # Forbidden words are never candidates.
    index = index[values[index] > -np.inf]
    return index[np.argsort(-values[index], kind="stable")][:count]


def greedy(
    step: Step, state: list[State], rules: Rules, *, max_words: int
) -> Hypotheses:
    """Write the most probable word at every step, of equal ones the smallest id."""

    def select_word(t: int, log_probs: np.ndarray) -> np.ndarray:
        index: np.ndarray = log_probs.argmax(axis=-1)
        return index

    return _write(step, state, select_word, 1, max_words, rules)


def sample(
    step: Step,
    state: list[State],
    rules: Rules,
    noise: np.ndarray,
    *,
    temperature: float = 1.0,
) -> Hypotheses:
    """Sample every word with probability proportional to p ** (1 / temperature).

    Args:
        step: see the module.
        state: of the empty caption.
        rules: the ids with a meaning.
        noise: uniform numbers in [0, 1), (W, T): W captions of at most T words.
        temperature: above 0.
    """
    W, T = noise.shape

    def select_word(t: int, log_probs: np.ndarray) -> np.ndarray:
        p = softmax(log_probs / np.float32(temperature))  # (W, K)
        return sample_index(p, noise[:, t, None])

    # W copies of the state of the empty caption, (1, ...) -> (W, ...).
    state = [pick(arrays, np.zeros(W, int)) for arrays in state]
    return _write(step, state, select_word, W, T, rules)


def _write(
    step: Step,
    state: list[State],
    select_word: Callable[[int, np.ndarray], np.ndarray],
    W: int,
    T: int,
    rules: Rules,
) -> Hypotheses:
    """Write W captions; ``select_word`` returns their words (W,) from log p (W, K)."""
    words = np.full(W, rules.start_id)
    written: Records = {}
    lengths = np.zeros(W, int)
    finished = np.zeros(W, bool)
    for t in range(T):
        log_probs, state, extras = rules.call(step, t, words, state)
        words = select_word(t, log_probs)  # (W,)
        new = {"tokens": words, "word_log_probs": log_probs[np.arange(W), words]}
        written = append(written, new | extras)
        # Before `finished` is updated: the end word counts.
        lengths += ~finished
        finished |= words == rules.end_id
        if finished.all():
            break
    captions = []
    for k, length in enumerate(lengths):
        caption = {name: x[k, :length] for name, x in written.items()}
        log_prob = float(caption["word_log_probs"].sum())
        captions.append(_Caption(0, log_prob, caption))
    powers = np.ones(T, np.float32)
    return _hypotheses(captions, W, powers, rules.pad_id, finished)


def pick(arrays: Records, index: np.ndarray | int) -> Records:
    """Return the rows of all arrays."""
    return {name: x[index] for name, x in arrays.items()}


def append(written: Records, new: Records) -> Records:
    """Return records (W, t, ...) with one more word (W, ...)."""
    longer = {}
    for name, x in new.items():
        # Before the first word there is no record, whose shape extras give.
        before = [written[name]] if written else []
        longer[name] = np.concatenate([*before, x[:, None]], axis=1)
    return longer


def _hypotheses(
    captions: Sequence[_Caption],
    W: int,
    powers: np.ndarray,
    pad_id: int,
    finished: np.ndarray | bool,
) -> Hypotheses:
    """Return captions as arrays of W rows and T words, padded."""
    T = len(powers)
    empty = {"tokens": pad_id, "locations": -1}
    fields: Records = {}
    for name, x in captions[0].written.items():
        kind = np.int32 if name in empty else np.float32
        fields[name] = np.full((W, T, *x.shape[1:]), empty.get(name, 0), kind)
        for k, caption in enumerate(captions):
            fields[name][k, : len(caption.written[name])] = caption.written[name]
    lengths = np.zeros(W, np.int32)
    log_probs = np.full(W, -np.inf, np.float32)
    lengths[: len(captions)] = [len(one.written["tokens"]) for one in captions]
    log_probs[: len(captions)] = [one.log_prob for one in captions]
    return Hypotheses(
        **fields,
        lengths=lengths,
        log_probs=log_probs,
        scores=log_probs / powers[np.maximum(lengths, 1) - 1],
        finished=(lengths > 0) & finished,
    )
