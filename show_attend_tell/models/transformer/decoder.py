"""Read and write captions with a Transformer, arXiv:1706.03762, over annotations.

Once per photo, m (P, L, d) is what every layer attends to::

    m = LN(max(0, a W_m + b_m)) + P       P the sines of row and column, fixed
    m = layers of self-attention of m     with ``encoder_layers``

For the words y_{t-1}, t = 1 .. T, in parallel in training and one by one in decoding::

    x_0 = sqrt(d) E y_{t-1} + PE(t - 1)
    x_k = FFN(attention to m(self-attention to the words up to t(x_{k-1})))
    p(y_t | a, y_<t) = softmax(E LN(x_N) + b_o)

LN(x_N) is x_N itself with ``norm = "post"``. alpha_t is one layer's attention to m, of
one head or the mean over the heads, and beta_t = 1. In decoding the state of a
hypothesis holds the keys and values of its words; all hypotheses share the photo's.

Notation: :mod:`models.transformer.attention`.
"""

import itertools
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from show_attend_tell.models.decoder_interface import (
    NO_DROPOUT,
    SOFT,
    WHOLE,
    CompiledParts,
    Dropouts,
    MatrixLayer,
    NextWord,
    product,
)
from show_attend_tell.models.transformer.attention import causal_bias, grid_positions
from show_attend_tell.models.transformer.layer import (
    PhotoKeys,
    TransformerLayer,
    WordKeys,
    normalisation,
)
from show_attend_tell.reference.transformer import sinusoids


class Memory(NamedTuple):
    """The tensors that are computed once per photo."""

    locations: object  # m, (P, L, d)
    layers: tuple[PhotoKeys, ...]  # keys and values of m in each layer


class TransformerDecoder(MatrixLayer):
    """A Transformer, see :class:`models.decoder_interface.CaptionDecoder`."""

    shares_photos = True

    def __init__(
        self, settings, vocabulary_size, annotation_width, grid, seed=0, **kwargs
    ):
        super().__init__(**kwargs)
        self.settings = settings
        self.grid = tuple(grid)
        self.dropout = settings.dropout
        s = settings
        d = settings.width
        seeds = itertools.count(seed * 1000)
        # `_embed` multiplies by sqrt(d): embedded words start with deviation 1, and so
        # do the logits of a tied output.
        self.embedding = self.add_weight(
            shape=(vocabulary_size, d),
            initializer=keras.initializers.RandomNormal(
                stddev=d**-0.5, seed=next(seeds)
            ),
            name="embedding",
        )
        self.w_m = self.matrix("w_m", annotation_width, d, seeds)
        self.b_m = self.bias("b_m", d)
        self.memory_norm = normalisation(d, "memory_norm")
        self.encoder_layers = [
            TransformerLayer(s, seeds, with_photo=False, name=f"encoder_layer_{k + 1}")
            for k in range(s.encoder_layers)
        ]
        self.decoder_layers = [
            TransformerLayer(s, seeds, name=f"layer_{k + 1}") for k in range(s.layers)
        ]
        if s.norm == "pre":
            self.output_norm = normalisation(d, "output_norm")
            if s.encoder_layers:
                self.encoder_norm = normalisation(d, "encoder_norm")
        if not s.tie_output:
            self.l_o = self.matrix("l_o", d, vocabulary_size, seeds)
        self.l_o_b = self.bias("l_o_b", vocabulary_size)
        self.built = True

    def memory(
        self,
        annotations,
        parts: CompiledParts = WHOLE,
        dropouts: Dropouts = NO_DROPOUT,
    ) -> Memory:
        """Compute m of photos, (P, L, D), and its keys and values in each layer.

        Training reads m itself if that is faster; a graph then omits the latter.
        """
        precision = parts.precision
        m = product(annotations, self.w_m, precision)  # (P, L, D) -> (P, L, d)
        m = parts.compiled(self._normalise_locations)(m)
        for layer in self.encoder_layers:
            m = layer.read_words(m, None, dropouts.hidden, precision)
            m = layer.feed_forward(m, dropouts.hidden, precision)
        if self.encoder_layers and self.settings.norm == "pre":
            m = self.encoder_norm(m)
        layers = (x.photo_keys(m, precision) for x in self.decoder_layers)
        return Memory(m, tuple(layers))

    def _normalise_locations(self, m):
        """Return LN(max(0, m + b_m)) + P, (P, L, d)."""
        m = self.memory_norm(ops.relu(m + self.b_m))
        if self.settings.positions == "none":
            return m
        return m + grid_positions(self.grid, self.settings.width)  # (L, d)

    def read(
        self,
        tokens,
        memory: Memory,
        dropouts: Dropouts = NO_DROPOUT,
        parts: CompiledParts = WHOLE,
        selection=SOFT,
        samples=1,
    ) -> dict:
        """Read all words in parallel, see :meth:`Captioner.teacher_force`.

        The context is always the mean by alpha: `selection` is SOFT and `samples` 1.
        """
        x, weights = self._read(tokens, memory, dropouts, parts.precision)
        logits = self._logits(x, parts.precision)  # (B, T, d) -> (B, T, K)
        L = weights[0].shape[-1]
        alpha = self._alpha(weights)
        alpha = ops.reshape(alpha, (*ops.shape(tokens), L))  # (P, C T, L) -> (B, T, L)
        beta = ops.ones_like(alpha[..., 0])
        return {"logits": logits, "alpha": alpha, "beta": beta}

    def head_weights(self, tokens, memory: Memory, bias=None):
        """Return the attention to the photo of every head and layer, (B, N, H, T, L).

        See :meth:`Captioner.attention_heads`.
        """
        return ops.stack(self._read(tokens, memory, bias=bias)[1], axis=1)

    def _read(
        self, tokens, memory, dropouts=NO_DROPOUT, precision="float32", bias=None
    ):
        """Return x_N (B, T, d) and the attention of each layer, (P, H, C T, L)."""
        T = tokens.shape[1]
        x = dropouts.words(self._embed(tokens))  # (B, T) -> (B, T, d)
        x = dropouts.hidden(x + sinusoids(np.arange(T), self.settings.width))
        if bias is not None:
            bias = ops.expand_dims(bias, 1)  # (B, T, L) -> (B, 1, T, L)
        weights = []
        photos = memory.layers
        # Decided from shapes, when the graph is traced; the other form is not part of
        # it.
        if self._is_read_unprojected(tokens, memory.locations):
            photos = [memory.locations] * len(photos)
        for layer, photo in zip(self.decoder_layers, photos, strict=True):
            x = layer.read_words(x, causal_bias(T), dropouts.hidden, precision)
            x, w = layer.read_photo(x, photo, bias, dropouts.hidden, precision)
            x = layer.feed_forward(x, dropouts.hidden, precision)
            weights.append(w)
        return x, weights

    def _is_read_unprojected(self, tokens, m):
        """Return whether reading m itself takes fewer operations than its keys.

        For each location, R rows and H heads, keys and values take 2 d (d + R)
        multiplications, of which 2 d d project the location. Read itself it takes
        2 d H R: each head multiplies all of its d channels.
        """
        d = self.settings.width
        B, T = tokens.shape
        P = m.shape[0]
        # In a graph for any batch B and P are None: then each photo has one caption.
        R = B // P * T if B and P else T  # words of all captions of a photo
        return self.settings.heads * R < d + R

    def search_memory(self, annotations, words: int | None) -> Memory:
        """Return :meth:`memory`; the number of words does not matter."""
        return self.memory(annotations)

    def start(self, memory: Memory, max_words: int) -> dict:
        """Return the state before the first word, leaves (B, ...).

        ``t`` (B,) is the number of words so far, ``words`` the keys and values of each
        layer, (B, max_words, d).
        """
        B = ops.shape(memory.locations)[0]
        # Of all words from the start: the state of a loop keeps its shape.
        empty = ops.zeros((B, max_words, self.settings.width), "float32")
        layers = tuple(WordKeys(empty, empty) for _ in self.decoder_layers)
        return {"t": ops.zeros((B,), "int32"), "words": layers}

    def next_word(
        self, tokens, state, memory: Memory, select_weights=None, bias=None
    ) -> NextWord:
        """Advance W hypotheses of each photo by one word, tokens y_{t-1} (B, W).

        `bias`, (B, L) or (B, W, L), is added to the scores of every head.
        """
        t = state["t"]  # (B, W)
        layers = []
        # A constant of the graph, from which each hypothesis takes the row of its word.
        table = sinusoids(
            np.arange(state["words"][0].keys.shape[2]), self.settings.width
        )
        x = self._embed(tokens) + ops.take(table, t, axis=0)  # (B, W, d)
        if bias is not None:  # (B, W or 1, L) -> (B, 1, W or 1, L)
            bias = ops.expand_dims(bias if len(bias.shape) == 3 else bias[:, None], 1)
        alphas = []
        for layer, cache, photo in zip(
            self.decoder_layers, state["words"], memory.layers, strict=True
        ):
            x, cache = layer.write_word(x, cache, t)
            x, weights = layer.read_photo(x, photo, bias)  # weights (B, H, W, L)
            x = layer.feed_forward(x)
            layers.append(cache)
            alphas.append(weights)
        alpha = self._alpha(alphas)  # (B, W, L)
        state = {"t": t + 1, "words": tuple(layers)}
        beta = ops.ones_like(alpha[..., 0])
        return NextWord(self._logits(x), state, alpha, alpha, beta)

    def _alpha(self, weights):
        """Return the attention to show, (B, R, L), of each layer's (B, H, R, L)."""
        heads = weights[self.settings.alpha_layer - 1]  # layer 0 is the last, [-1]
        head = self.settings.alpha_head
        return heads[:, head - 1] if head else ops.mean(heads, axis=1)

    def _embed(self, tokens):
        """Return sqrt(d) E y, (...) -> (..., d)."""
        return ops.take(self.embedding, tokens, axis=0) * self.settings.width**0.5

    def _logits(self, x, precision="float32"):
        """Return the logits of the next word, (..., d) -> (..., K)."""
        if self.settings.norm == "pre":
            x = self.output_norm(x)
        if self.settings.tie_output:
            matrix = ops.transpose(self.embedding)  # (K, d) -> (d, K)
        else:
            matrix = self.l_o
        return product(x, matrix, precision) + self.l_o_b
