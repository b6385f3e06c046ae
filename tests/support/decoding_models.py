"""Define a small model to decode, and enumerate its captions in NumPy."""

import itertools

import keras
import numpy as np
from keras import ops

PAD, START, END = 0, 1, 2
IDS = {"start_id": START, "end_id": END, "pad_id": PAD}
FORBIDDEN = (PAD, START)


def random_tables(rng, B, K, sharpness=2.0):
    """Return log-probabilities (B, K, K) of a word given the word before it."""
    logits = sharpness * rng.standard_normal((B, K, K))
    return (logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)).astype("f4")


class Markov:
    """A Markov chain per photo whose alpha and beta spell the words read so far.

    The state ``code`` is the number whose digits in base K are the words read;
    ``alpha`` (B, W, 3) is (code, the photo, last word), ``beta`` is code + 1/2 and
    ``locations`` is code.
    """

    def __init__(self, tables):
        self.tables = tables

    def initial_state(self):
        return {"code": np.zeros(len(self.tables), "int32")}

    def step(self, tokens, state):
        return markov_step(self.tables, tokens, state)

    def run(self, method, *args, **settings):
        """Decode and return NumPy arrays."""
        batch = () if len(args) else (len(self.tables),)
        settings = {"forbidden": FORBIDDEN, **IDS, **settings}
        found = method(self.step, self.initial_state(), *args, *batch, **settings)
        return type(found)(*map(ops.convert_to_numpy, found))


def markov_step(tables, tokens, state):
    """Compute one step of :class:`Markov` for given tables (B, K, K)."""
    B, W = ops.shape(tokens)
    K = tables.shape[-1]
    rows = ops.reshape(ops.arange(B, dtype="int32"), (-1, 1))
    log_probs = ops.take(ops.reshape(tables, (-1, K)), rows * K + tokens, axis=0)
    code = state["code"] * K + tokens
    parts = [code, rows + ops.zeros_like(tokens), tokens]
    alpha = ops.cast(ops.stack(parts, axis=-1), "float32")
    beta = ops.cast(code, "float32") + 0.5
    extras = {"alpha": alpha, "beta": beta, "locations": code}
    return log_probs, {"code": code}, extras


def all_captions(table, max_words, allowed):
    """Return {words: log p} of every caption that ends within ``max_words``."""
    captions = {}
    for length in range(max_words):
        for words in itertools.product([w for w in allowed if w != END], repeat=length):
            captions[(*words, END)] = rescore(table, (*words, END))
    return captions


def captions_of(found, b):
    """Return the words of each caption of photo ``b``, without empty slots."""
    return [
        tuple(int(w) for w in words[:length])
        for words, length in zip(found.tokens[b], found.lengths[b], strict=True)
        if length
    ]


def one_chain(probabilities):
    """Return tables (1, K, K) from rows of probabilities per last word."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, "f4"))[None]


def rescore(table, words):
    """Return log p of the words, the first given the start word."""
    return float(sum(table[a, b] for a, b in zip((START, *words), words, strict=False)))


def spelled_code(words, t, K):
    """Return the code read when word ``t`` was written."""
    return sum(w * K**i for i, w in enumerate(reversed((START, *words[:t]))))


on_tensorflow = keras.backend.backend() == "tensorflow"
