"""Compute the Transformer's attention in heads, and the sines of a photo's locations.

The paper's own attention is in :mod:`models.lstm.attention`.

"Attention is all you need", arXiv:1706.03762, Sec. 3.2 and 3.5::

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_h)) V                         Eq. (1)
    head_j = Attention(x W_j^Q, y W_j^K, y W_j^V)
    MultiHead(x, y) = [head_1 .. head_H] W^O
    PE(p, 2i) = sin(p / 10000^(2i/d))     PE(p, 2i+1) = cos(p / 10000^(2i/d))

Further sizes: d width, H heads, d_h = d / H, R rows of x (words, or hypotheses of a
beam). See :mod:`models.lstm.attention` for the others.
"""

import numpy as np
from keras import ops

from show_attend_tell.models.decoder_interface import MatrixLayer, product
from show_attend_tell.reference.transformer import sinusoids

MASKED = -1e9  # added to the score of a row that must not be read; its weight is then 0


def grid_positions(grid, width):
    """Return PE of the locations of a photo, (L, width) float32.

    The first half encodes the row, the second half the column.
    """
    rows, columns = np.divmod(np.arange(grid[0] * grid[1]), grid[1])  # (L,)
    return np.hstack([sinusoids(rows, width // 2), sinusoids(columns, width // 2)])


def causal_bias(words):
    """Return the bias (T, T) with which word t reads the words up to t alone."""
    later = np.arange(words) > np.arange(words)[:, None]
    return np.where(later, MASKED, 0.0).astype(np.float32)


class HeadAttention(MatrixLayer):
    """MultiHead(x, y) of the module docstring, with biases.

    Keys have none: q . b is equal for all rows, and the softmax ignores it.

    Args:
        width: d.
        heads: H.
        seeds: iterator of the seeds of initial weights.
    """

    def __init__(self, width, heads, seeds, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.heads = heads
        # Saved models have these names in this order.
        self.w_q = self.matrix("w_q", width, width, seeds)
        self.w_k = self.matrix("w_k", width, width, seeds)
        self.w_v = self.matrix("w_v", width, width, seeds)
        self.w_o = self.matrix("w_o", width, width, seeds)
        self.b_q = self.bias("b_q", width)
        self.b_v = self.bias("b_v", width)
        self.b_o = self.bias("b_o", width)
        self.built = True

    def queries(self, x, precision="float32"):
        """Return x W^Q / sqrt(d_h), (..., d)."""
        q = product(x, self.w_q, precision) + self.b_q
        # q is scaled and not the scores: it has d numbers a row, the scores H L.
        return q * (self.width // self.heads) ** -0.5

    def keys(self, y, precision="float32"):
        """Return y W^K, (..., d)."""
        return product(y, self.w_k, precision)

    def values(self, y, precision="float32"):
        """Return y W^V, (..., d)."""
        return product(y, self.w_v, precision) + self.b_v

    def output(self, joined, precision="float32"):
        """Return [head_1 .. head_H] W^O, (..., d) -> (..., d)."""
        return product(joined, self.w_o, precision) + self.b_o

    def attend(self, q, keys, values, bias=None):
        """Attend to rows that all queries of a photo share.

        Args:
            q: from :meth:`queries`, (B, R, d).
            keys: from :meth:`head_keys`, (B, H, d_h, L).
            values: from :meth:`head_values`, (B, H, L, d_h).
            bias: added to the scores, broadcast to (B, H, R, L), or None.

        Returns:
            The joined heads (B, R, d) and their weights (B, H, R, L), which sum to 1.
        """
        q_heads = ops.transpose(self._heads_of(q), (0, 2, 1, 3))  # (B, H, R, d_h)
        scores = ops.matmul(q_heads, keys)  # (B, H, R, L)
        weights = _softmax(scores, bias, axis=-1)
        heads = ops.matmul(weights, values)  # (B, H, R, L) @ -> (B, H, R, d_h)
        joined = ops.transpose(heads, (0, 2, 1, 3))  # (B, R, H, d_h)
        return ops.reshape(joined, ops.shape(q)), weights

    def head_keys(self, keys):
        """Return keys (B, L, d) as (B, H, d_h, L)."""
        return ops.transpose(self._heads_of(keys), (0, 2, 3, 1))

    def head_values(self, values):
        """Return values (B, L, d) as (B, H, L, d_h)."""
        return ops.transpose(self._heads_of(values), (0, 2, 1, 3))

    def attend_unprojected(self, q, m, bias=None, precision="float32"):
        """Attend to m (P, L, d) as :meth:`attend` does, without its keys and values.

        The R queries and the means of m are projected in place of the L locations,
        which takes fewer operations for R H < d + R::

            weights_j = softmax(q_j (W_j^K)^T m^T)
            head_j = (weights_j m) W_j^V + b_j
        """
        H = self.heads
        size = self.width // self.heads
        d = self.width
        P = ops.shape(q)[0]
        R = ops.shape(q)[1]
        L = m.shape[1]
        m = ops.cast(m, precision)
        # (d, d) -> (H, d_h, d), and (P, R, d) -> (H, P R, d_h)
        w_k = ops.reshape(ops.transpose(self.w_k), (H, size, d))
        q = ops.transpose(ops.reshape(q, (-1, H, size)), (1, 0, 2))
        q = ops.reshape(ops.matmul(q, w_k), (H, P, -1, d))  # (H, P, R, d)
        q = ops.reshape(ops.transpose(q, (1, 0, 2, 3)), (P, -1, d))  # (P, H R, d)
        # (P, H R, d) @ (P, d, L) -> (P, H R, L)
        scores = ops.matmul(ops.cast(q, precision), ops.transpose(m, (0, 2, 1)))
        weights = _softmax(ops.reshape(scores, (P, H, R, L)), bias, axis=-1)
        flat = ops.cast(ops.reshape(weights, (P, -1, L)), precision)  # (P, H R, L)
        means = ops.cast(ops.matmul(flat, m), self.w_v.dtype)  # (P, H R, d)
        means = ops.transpose(ops.reshape(means, (P, H, R, d)), (1, 0, 2, 3))
        # (H, P R, d) @ (H, d, d_h) -> (H, P R, d_h)
        w_v = ops.transpose(ops.reshape(self.w_v, (d, H, size)), (1, 0, 2))
        heads = ops.matmul(ops.reshape(means, (H, -1, d)), w_v)
        joined = ops.reshape(ops.transpose(heads, (1, 0, 2)), (P, R, d))
        return joined + self.b_v, weights

    def attend_cached(self, q, keys, values, bias):
        """Attend from each hypothesis to its own rows; return the joined heads.

        Shapes: q (B, W, d), keys and values (B, W, T, d), bias (B, W, T).
        """
        q = ops.expand_dims(self._heads_of(q), 2)  # (B, W, d) -> (B, W, 1, H, d_h)
        # -> (B, W, T, H)
        scores = ops.sum(q * self._heads_of(keys), axis=-1)
        weights = _softmax(scores, ops.expand_dims(bias, -1), axis=2)
        weights = ops.expand_dims(weights, -1)  # (B, W, T, H, 1)
        heads = ops.sum(weights * self._heads_of(values), axis=2)  # (B, W, H, d_h)
        return ops.reshape(heads, (*ops.shape(heads)[:2], self.width))

    def _heads_of(self, x):
        """Return (..., d) as (..., H, d_h)."""
        sizes = (self.heads, self.width // self.heads)
        return ops.reshape(x, (*ops.shape(x)[:-1], *sizes))


def _softmax(scores, bias, axis):
    """Return the softmax in float32, of half precision too."""
    scores = ops.cast(scores, "float32")
    if scores.shape[axis] == 1:  # Keras warns of a softmax over one value, 1
        # Not ones: queries and keys must have a gradient, which is 0.
        return scores - scores + 1.0
    if bias is not None:
        scores = scores + ops.cast(bias, "float32")
    return ops.softmax(scores, axis=axis)
