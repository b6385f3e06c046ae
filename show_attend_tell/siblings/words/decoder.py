r"""Generate the characters of a word: the variants of Table 2 of arXiv:1603.03101.

With the previous character y_{t-1}, its embedding E y, recurrent layers f, features I
of the whole crop, and annotations a_i of its places::

    independent      p(y_t) = softmax(W_t I)                      no recurrent layer
    rnn1_start       s1_t = f(E y, [I if t = 1], s1_{t-1})
    rnn1             s1_t = f(E y, I, s1_{t-1})
    rnn2             s1_t = f(E y, I, s1_{t-1}),  s2_t = f(s1_t, s2_{t-1})
    rnn2_factored    s1_t = f(E y, s1_{t-1}),     s2_t = f(s1_t, I, s2_{t-1})
    attention        s1_t = f(E y, s1_{t-1}),     s2_t = f(s1_t, z_t, s2_{t-1})

and p(y_t) = softmax(W s_t + b) of the last layer. Attention is between the layers, so
that s1, the language model, directs it::

    places           e_ti = w . tanh(W_a a_i + W_s s1_t + b)
                     z_t = sum_i alpha_ti a_i
    features         e_ti = w_i tanh(u_i I_i + (W_s s1_t)_i + b_i)
                     z_ti = F alpha_ti I_i

with alpha_t = softmax(e_t), over L places or F features. Attention over places is the
captioner's, :func:`models.lstm.attention.attend`; attention over features is the
paper's, which does not state its exact form.

s1 does not depend on the attention, so training computes all T steps of attention
together between the two recurrences.
"""

import itertools
from typing import NamedTuple

import keras
from keras import ops

from show_attend_tell.models.decoder_interface import MatrixLayer
from show_attend_tell.models.lstm.attention import attend
from show_attend_tell.siblings.common.layers import Cell
from show_attend_tell.siblings.words.data import STEPS, TOKENS

_TOKENS = len(TOKENS)  # of the default alphabet
# The recurrent layers that receive I, the features of the whole crop.
_FEATURES_ENTER_FIRST = ("rnn1_start", "rnn1", "rnn2")
_FEATURES_ENTER_SECOND = ("rnn2_factored",)


class Memory(NamedTuple):
    """The tensors of a batch of crops that are computed once, before any character."""

    annotations: object  # a (B, L, C), or I (B, F)
    # W_a a + b (B, L, A); u I + b (B, F); what I adds to the gates (B, gates); or the
    # logits of all steps (B, T, K)
    projected: object


class WordDecoder(MatrixLayer):
    """Generate characters from annotations.

    Args:
        settings: a :class:`words.settings.ReaderSettings`.
        inputs: C, width of an annotation, or F.
        seed: seed of the initial weights.
        tokens: K, number of tokens.
    """

    def __init__(self, settings, inputs, seed=0, tokens=_TOKENS, **kwargs):
        super().__init__(**kwargs)
        self.settings = settings
        self.inputs = inputs
        self.seed = seed
        self.tokens = tokens
        s = settings
        K = tokens
        # 20 apart, because a Cell also uses seeds up to 10 after its own.
        self._seeds = itertools.count(seed * 1000 + 20, 20)
        self.first = self.second = None
        if s.decoder == "independent":
            # The W_t of all positions side by side in one matrix.
            K *= STEPS
            self.output_kernel = self.matrix("output_kernel", inputs, K, self._seeds)
            self.output_bias = self.bias("output_bias", K)
            self.built = True
            return
        m = s.embedding_width
        n = s.width
        self.embedding = self.matrix("embedding", K, m, self._seeds)
        self.first = Cell(s.cell, m, n, next(self._seeds), name="first")
        if s.decoder in ("rnn2", "rnn2_factored", "attention"):
            self.second = Cell(s.cell, n, n, next(self._seeds), name="second")
        # Of I or z, for the first layer or the second, which have equally many gates.
        self.feed = self.matrix("feed", inputs, self.first.gates, self._seeds)
        if s.decoder == "attention":
            self._create_attention()
        self.output_kernel = self.matrix("output_kernel", n, K, self._seeds)
        self.output_bias = self.bias("output_bias", K)
        self.built = True

    def _create_attention(self):
        s = self.settings
        A = s.attention_width if s.reads_places else self.inputs
        self.w_s = self.matrix("w_s", s.width, A, self._seeds)
        self.b = self.bias("b", A)
        if s.reads_places:
            self.w_a = self.matrix("w_a", self.inputs, A, self._seeds)
            self.w = self.matrix("w", A, 1, self._seeds)
            return
        near = keras.initializers.RandomNormal(stddev=0.1, seed=next(self._seeds))
        # u_i and w_i of the features, in place of the W_a and w of places.
        self.u = self.add_weight(shape=(A,), initializer="ones", name="u")
        self.w = self.add_weight(shape=(A,), initializer=near, name="w")

    def memory(self, annotations):
        """Compute what depends on the crops alone.

        Args:
            annotations: of :class:`encoder.CropEncoder`.
        """
        if self.settings.decoder == "independent":
            logits = ops.matmul(annotations, self.output_kernel) + self.output_bias
            projected = ops.reshape(logits, (-1, STEPS, self.tokens))
        elif self.settings.decoder != "attention":
            projected = ops.matmul(annotations, self.feed)  # (B, F) -> (B, gates)
        elif self.settings.reads_places:
            projected = ops.matmul(annotations, self.w_a) + self.b  # (B, L, A)
        else:
            projected = annotations * self.u + self.b  # (B, F)
        return Memory(annotations, projected)

    def teacher_force(self, tokens, memory):
        """Return logits (B, T, K) and alpha (B, T, L) for the preceding characters.

        Args:
            tokens: y_0 .. y_{T-1}, the start token first, (B, T).
            memory: from :meth:`memory`.
        """
        # Less than 24 where all words of a part are shorter, see
        # `training.split_targets`.
        T = tokens.shape[1]
        if self.first is None:
            alpha = ops.ones_like(memory.projected[:, :T, :1])
            return memory.projected[:, :T], alpha
        t = ops.expand_dims(ops.arange(T), 0)  # (1, T)
        s = self.first.unroll(self._gates_of_first(tokens, t, memory))  # (B, T, n)
        alpha = ops.ones_like(s[..., :1])
        if self.second is not None:
            gates, alpha = self._gates_of_second(s, memory)
            s = self.second.unroll(gates)
        return self._logits(s), alpha

    def start(self, memory):
        """Return the state before the first character, leaves (B, ...)."""
        B = ops.shape(memory.annotations)[0]
        state = {"t": ops.zeros((B,), "int32")}
        cells = {"first": self.first, "second": self.second}
        return state | {k: c.start(B) for k, c in cells.items() if c is not None}

    def step(self, tokens, state, memory):
        """Advance W hypotheses of each crop by one character.

        Args:
            tokens: y_{t-1}, (B, W).
            state: of :meth:`start`, with leaves (B, W, ...).
            memory: from :meth:`memory`.

        Returns:
            The logits (B, W, K), the next state, and alpha (B, W, L).
        """
        t = state["t"]  # (B, W)
        state = {**state, "t": t + 1}
        if self.first is None:
            # The product selects each hypothesis' logits of its step.
            chosen = ops.one_hot(t, STEPS, dtype="float32")  # (B, W, T)
            alpha = ops.ones_like(chosen[..., :1])
            return ops.matmul(chosen, memory.projected), state, alpha
        gates = self._gates_of_first(tokens, t, memory)  # (B, W, gates)
        state["first"] = self.first.step(gates, state["first"])
        s = state["first"][0]  # (B, W, n)
        alpha = ops.ones_like(s[..., :1])
        if self.second is not None:
            gates, alpha = self._gates_of_second(s, memory)
            state["second"] = self.second.step(gates, state["second"])
            s = state["second"][0]
        return self._logits(s), state, alpha

    def _gates_of_first(self, tokens, t, memory):
        """Return the inputs of the first layer for characters (B, T or W) at steps."""
        # A product, because the gradient of `ops.take` is slow under XLA.
        chosen = ops.one_hot(tokens, self.tokens, dtype="float32")
        gates = self.first.project(ops.matmul(chosen, self.embedding))
        if self.settings.decoder not in _FEATURES_ENTER_FIRST:
            return gates
        fed = ops.expand_dims(memory.projected, 1)  # (B, 1, gates)
        if self.settings.decoder == "rnn1_start":
            fed = fed * ops.expand_dims(ops.cast(ops.equal(t, 0), fed.dtype), -1)
        return gates + fed

    def _logits(self, s):
        return ops.matmul(s, self.output_kernel) + self.output_bias

    def _gates_of_second(self, s, memory):
        """Return the inputs of the second layer, and alpha, for s1 (B, T or W, n)."""
        gates = self.second.project(s)
        if self.settings.decoder != "attention":
            if self.settings.decoder in _FEATURES_ENTER_SECOND:
                gates = gates + ops.expand_dims(memory.projected, 1)
            return gates, ops.ones_like(s[..., :1])
        query = ops.matmul(s, self.w_s)  # (B, T, A) or (B, T, F)
        if self.settings.reads_places:
            glimpse = attend(*memory, query, ops.reshape(self.w, (-1,)))
            z = glimpse.z_hat  # (B, T, C)
            alpha = glimpse.alpha  # (B, T, L)
        else:
            hidden = ops.tanh(ops.expand_dims(memory.projected, 1) + query)
            alpha = ops.softmax(hidden * self.w, axis=-1)  # (B, T, F)
            # F alpha, so that uniform weights 1/F leave the features as they are.
            z = self.inputs * alpha * ops.expand_dims(memory.annotations, 1)
        return gates + ops.matmul(z, self.feed), alpha
