"""Compute one layer of a Transformer: attention and a feed-forward part.

For each sublayer F and its layer normalisation LN::

    x + dropout(F(LN(x)))       norm = "pre"
    LN(x + dropout(F(x)))       norm = "post", arXiv:1706.03762, Sec. 3.1
    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2                                     Eq. (2)

Notation: :mod:`models.transformer.attention`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from show_attend_tell.models.decoder_interface import MatrixLayer, keep, product
from show_attend_tell.models.transformer.attention import MASKED, HeadAttention

EPSILON = 1e-5  # added to the variance in a layer normalisation


class PhotoKeys(NamedTuple):
    """The keys and values of a photo in one layer, computed once."""

    keys: Any  # (P, H, d_h, L)
    values: Any  # (P, H, L, d_h)


class WordKeys(NamedTuple):
    """The keys and values of the words that each hypothesis has so far."""

    keys: Any  # (B, W, T, d)
    values: Any  # (B, W, T, d)


def normalisation(width, name):
    """Return a layer normalisation over the last axis, of `width`."""
    norm = keras.layers.LayerNormalization(epsilon=EPSILON, name=name)
    # Built at once: weights must exist before the first call.
    norm.build((None, width))
    return norm


class TransformerLayer(MatrixLayer):
    """Self-attention, optionally attention to a photo, and a feed-forward part.

    Args:
        settings: a :class:`config.captioner.TransformerSettings`.
        seeds: iterator of the seeds of initial weights.
        with_photo: whether there is attention to a photo.
    """

    def __init__(self, settings, seeds, with_photo=True, **kwargs):
        super().__init__(**kwargs)
        s = settings
        d = settings.width
        self.is_pre = s.norm == "pre"
        # Names that make the paths of the weights unique.
        self.words = HeadAttention(d, s.heads, seeds, name=f"{self.name}_words")
        self.words_norm = normalisation(d, f"{self.name}_words_norm")
        if with_photo:
            self.photo = HeadAttention(d, s.heads, seeds, name=f"{self.name}_photo")
            self.photo_norm = normalisation(d, f"{self.name}_photo_norm")
        self.w_1 = self.matrix("w_1", d, s.hidden, seeds)
        self.b_1 = self.bias("b_1", s.hidden)
        self.w_2 = self.matrix("w_2", s.hidden, d, seeds)
        self.b_2 = self.bias("b_2", d)
        self.hidden_norm = normalisation(d, f"{self.name}_hidden_norm")
        self.built = True

    def photo_keys(self, memory, precision="float32") -> PhotoKeys:
        """Return the keys and values of photos, from (P, L, d)."""
        photo = self.photo
        return PhotoKeys(
            photo.head_keys(photo.keys(memory, precision)),
            photo.head_values(photo.values(memory, precision)),
        )

    def read_words(self, x, bias=None, dropout=keep, precision="float32"):
        """Attend from all rows to all rows, (B, T, d) -> (B, T, d).

        With :func:`causal_bias` as `bias` a row reads the rows up to itself alone.
        """

        def sublayer(y):
            words = self.words
            keys = words.head_keys(words.keys(y, precision))
            values = words.head_values(words.values(y, precision))
            joined, _ = words.attend(words.queries(y, precision), keys, values, bias)
            return words.output(joined, precision), None

        return self._add(x, self.words_norm, sublayer, dropout)[0]

    def write_word(self, x, cache: WordKeys, t):
        """Attend from the newest word of each hypothesis to its words so far.

        Args:
            x: (B, W, d).
            cache: the words before, in the rows below t.
            t: position of the word, (B, W) int32.

        Returns:
            (B, W, d), and the cache with the word at row t.
        """
        rows = ops.arange(cache.keys.shape[2], dtype="int32")  # (T,)
        t = ops.expand_dims(t, -1)  # (B, W) -> (B, W, 1)
        is_new = ops.expand_dims(ops.equal(rows, t), -1)  # (B, W, T, 1)
        # Rows after t are still zeros, whose weight must be 0.
        bias = ops.where(rows > t, MASKED, 0.0)  # (B, W, T)

        def sublayer(y):
            words = self.words
            new = WordKeys(words.keys(y), words.values(y))  # (B, W, d) each
            grown = WordKeys(
                keys=_with_row(cache.keys, new.keys, is_new),
                values=_with_row(cache.values, new.values, is_new),
            )
            joined = words.attend_cached(words.queries(y), *grown, bias)
            return words.output(joined), grown

        return self._add(x, self.words_norm, sublayer)

    def read_photo(self, x, photo, bias=None, dropout=keep, precision="float32"):
        """Attend from every row to the locations of its photo.

        Args:
            x: (B, R, d), of B = P C captions, C of each photo side by side.
            photo: :class:`PhotoKeys` of P photos, or m (P, L, d) itself: saves the
                projection of its locations where rows are few.
            bias: added to the scores, broadcast to (P, H, C R, L), or None.
            dropout: function of the sublayer's output.
            precision: dtype of the large products.

        Returns:
            (B, R, d) and the weights of each head, (P, H, C R, L).
        """
        shape = ops.shape(x)
        is_projected = isinstance(photo, PhotoKeys)
        P = ops.shape(photo.values if is_projected else photo)[0]
        # All captions of a photo read one copy of it: (B, R, d) -> (P, C R, d).
        per_photo = (P, -1, shape[-1])

        def sublayer(y):
            q = ops.reshape(self.photo.queries(y, precision), per_photo)
            if is_projected:
                joined, weights = self.photo.attend(q, *photo, bias)
            else:
                joined, weights = self.photo.attend_unprojected(
                    q, photo, bias, precision
                )
            joined = ops.reshape(joined, shape)  # (P, C R, d) -> (B, R, d)
            return self.photo.output(joined, precision), weights

        return self._add(x, self.photo_norm, sublayer, dropout)

    def feed_forward(self, x, dropout=keep, precision="float32"):
        """Apply the feed-forward part to every row, (..., d) -> (..., d)."""

        def sublayer(y):
            hidden = ops.relu(product(y, self.w_1, precision) + self.b_1)
            return product(hidden, self.w_2, precision) + self.b_2, None

        return self._add(x, self.hidden_norm, sublayer, dropout)[0]

    def _add(self, x, norm, sublayer: Callable, dropout: Callable = keep):
        """Add a sublayer's output to x; return the sum and its second result."""
        value, second = sublayer(norm(x) if self.is_pre else x)
        x = x + dropout(value)
        return (x if self.is_pre else norm(x)), second


def _with_row(rows, row, is_new):
    """Return (B, W, T, d) with `row` (B, W, d) where `is_new` (B, W, T, 1)."""
    row = ops.expand_dims(ops.cast(row, rows.dtype), 2)  # -> (B, W, 1, d)
    return ops.where(is_new, row, rows)
