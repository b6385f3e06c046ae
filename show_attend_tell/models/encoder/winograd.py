"""Compute 3 x 3 convolutions with a quarter of the products.

Winograd's minimal filtering F(4 x 4, 3 x 3), Lavin and Gray, arXiv:1509.09308. For a
tile d of 6 x 6 inputs, which overlaps its neighbours by 2, and a kernel g, the 4 x 4
outputs are::

    Y = A^T [(G g G^T) * (B^T d B)] A        * element by element, summed over channels

That is 36 products for each pair of channels where the sum of the definition has 144.
The rounding errors of float32 are about 1e-5 of the largest output; half precision
would be too coarse.
"""

import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from show_attend_tell.reference.encoder import A_T, B_T, LEAST_CHANNELS, G

TILE = 4  # outputs along a side of a tile
_WINDOW = TILE + 2  # inputs along its side


def with_fast_convolutions(network: keras.Model) -> keras.Model | None:
    """Copy a network, with faster 3 x 3 convolutions.

    Each batch size is compiled separately.

    Args:
        network: a functional model.

    Returns:
        The copy; None if no convolution can be replaced, as in half precision.
    """
    if not any(map(is_replaceable, network.layers)):
        return None
    return keras.models.clone_model(
        network, clone_function=lambda x: WinogradConv2D(x) if is_replaceable(x) else x
    )


def is_replaceable(layer: keras.layers.Layer) -> bool:
    """Return whether a layer is a convolution that :class:`WinogradConv2D` replaces."""
    if not isinstance(layer, keras.layers.Conv2D) or layer.compute_dtype != "float32":
        return False
    return (
        layer.kernel_size == (3, 3)
        and layer.strides == (1, 1)
        and layer.dilation_rate == (1, 1)
        and layer.groups == 1
        and layer.padding == "same"
        and layer.data_format == "channels_last"
        and min(layer.kernel.shape[2:]) >= LEAST_CHANNELS
    )


class WinogradConv2D(keras.layers.Layer):
    """A convolution with the weights that another layer has now.

    Args:
        convolution: a layer for which :func:`is_replaceable` holds.
    """

    def __init__(self, convolution: keras.layers.Conv2D):
        super().__init__(name=convolution.name, dtype="float32", trainable=False)
        # In float64, so that products with the fractions of G are rounded once, to
        # float32.
        kernel = np.asarray(convolution.kernel, np.float64)  # (3, 3, C, K)
        # G g G^T, 36 matrices (C, K)
        products = np.einsum("ia,jb,abck->ijck", G, G, kernel, optimize=True)
        # 6 x 6 of (C, K)
        self._products = [[tf.constant(g, tf.float32) for g in row] for row in products]
        self._bias = tf.zeros(kernel.shape[3])
        if convolution.use_bias:
            self._bias = tf.constant(np.asarray(convolution.bias))  # (K,)
        self._activation = convolution.activation
        self._filters = convolution.filters
        # XLA fuses the sums of a transform. The 36 products between them stay outside,
        # as TensorFlow's are faster than XLA's on a CPU.
        self._compiled = [
            _compiled(part)
            for part in (_combine_rows, _combine_columns, _outputs(self._activation))
        ]
        # Its weights are constants: Keras has nothing to build.
        self.built = True

    def compute_output_shape(self, shape):
        """Return the shape of the output, (B, H, W, K)."""
        return (*shape[:-1], self._filters)

    def call(self, x):
        """Convolve, add the bias and apply the activation, (B, H, W, C) -> (..., K)."""
        rows, columns, outputs = self._compiled
        H, W = x.shape[1:3]
        down = -H % TILE
        right = -W % TILE
        # A frame of 1, and zeros up to whole tiles
        x = tf.pad(x, [(0, 0), (1, 1 + down), (1, 1 + right), (0, 0)])
        windows = map(columns, rows(x))  # B^T d B: 6 x 6 of (B, H / 4, W / 4, C)
        products = [
            [_rows_product(d, g) for d, g in zip(row, matrices, strict=True)]
            for row, matrices in zip(windows, self._products, strict=True)
        ]
        return outputs(products, self._bias)[:, :H, :W]


@functools.cache  # one function for all convolutions, with a graph for each shape
def _compiled(function: Callable) -> Callable:
    return tf.function(function, autograph=False, jit_compile=True)


# Cached, so that `_compiled` gets one function for each activation.
@functools.cache
def _outputs(activation: Callable) -> Callable:
    """Return the function of 6 x 6 products M and the bias: activation(A^T M A + b)."""

    def outputs(products, bias):
        rows = [
            [_combination(weights, column) for column in zip(*products, strict=True)]
            for weights in A_T
        ]  # 4 x 6
        tiles = [[_combination(weights, row) for weights in A_T] for row in rows]
        # 4 x 4 of (B, H / 4, W / 4, K) -> (B, H / 4, 4, W / 4, 4, K)
        y = tf.stack([tf.stack(row, axis=3) for row in tiles], axis=2)
        down, _, right, _, K = y.shape[1:]
        y = tf.reshape(y, (-1, TILE * down, TILE * right, K))
        return activation(y + bias)

    return outputs


def _rows_product(x, matrix):
    """Return (B, h, w, C) by (C, K), (B, h, w, K)."""
    flat = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), matrix)
    return tf.reshape(flat, (-1, *x.shape[1:3], matrix.shape[-1]))


def _combine_rows(x):
    """Return B^T d along the rows of the tiles: 6 of (B, H / 4, W + 2, C)."""
    # Row i of every tile is a slice with stride 4; no tensor of tiles is made.
    last = x.shape[1] - _WINDOW + 1
    rows = [x[:, i : i + last : TILE] for i in range(_WINDOW)]
    return [_combination(weights, rows) for weights in B_T]


def _combine_columns(x):
    """Return d B along the columns of one row: 6 of (B, H / 4, W / 4, C)."""
    last = x.shape[2] - _WINDOW + 1
    columns = [x[:, :, j : j + last : TILE] for j in range(_WINDOW)]
    return [_combination(weights, columns) for weights in B_T]


def _combination(weights, terms):
    """Return the sum of weighted terms; skip terms of weight 0."""
    weighted = [
        term if weight == 1 else float(weight) * term
        for weight, term in zip(weights, terms, strict=True)
        if weight
    ]
    return sum(weighted[1:], weighted[0])
