"""The affine maps and the LSTM that DRAW's models are made of."""

import keras
import numpy as np
from keras import ops

from show_attend_tell.models.lstm.cell import OrthogonalGates, lstm_update


class Affine(keras.layers.Layer):
    """Compute W v + b.

    Args:
        inputs: width of v.
        outputs: width of the result.
        seed: seed of Glorot's initial W; None for zeros.
    """

    def __init__(self, inputs, outputs, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.inputs, self.outputs, self.seed = inputs, outputs, seed
        glorot = keras.initializers.GlorotUniform(seed)
        initial = "zeros" if seed is None else glorot
        self.kernel = self.add_weight(
            shape=(inputs, outputs), initializer=initial, name="kernel"
        )
        self.bias = self.add_weight(shape=(outputs,), initializer="zeros", name="bias")
        self.built = True

    def call(self, vector):
        """Return (B, inputs) -> (B, outputs)."""
        return ops.matmul(vector, self.kernel) + self.bias


class Lstm(keras.layers.Layer):
    """An LSTM whose h_0 is learned, and whose cell starts at zero.

    At the start the matrices of h are orthogonal, one for each gate, those of the input
    follow Glorot's rule, and the bias of the forget gate is 1.

    Args:
        inputs: width of the input.
        width: n, width of h.
        seed: seed of the initial weights.
    """

    def __init__(self, inputs, width, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.inputs, self.width, self.seed = inputs, width, seed
        # Of [v, h]: one product in place of two.
        self.kernel = self.add_weight(
            shape=(inputs + width, 4 * width), initializer="zeros", name="kernel"
        )
        parts = (
            keras.initializers.GlorotUniform(seed)((inputs, 4 * width)),
            OrthogonalGates(seed + 1)((width, 4 * width)),
        )
        self.kernel.assign(ops.concatenate(parts, axis=0))
        self.bias = self.add_weight(
            shape=(4 * width,), initializer="zeros", name="bias"
        )
        gates = np.zeros(4 * width, np.float32)
        gates[width : 2 * width] = 1.0  # of the forget gate, the second one
        self.bias.assign(gates)
        self.h_0 = self.add_weight(shape=(width,), initializer="zeros", name="h_0")
        self.built = True

    def start(self, rows):
        """Return h_0 and the cell of a batch of B rows, (B, n) each."""
        h = ops.broadcast_to(self.h_0, (rows, self.width))
        return h, ops.zeros((rows, self.width))

    def call(self, vector, state, more_gates=0.0):
        """Advance by one step; return the next h and cell.

        Args:
            vector: (B, inputs).
            state: h and the cell, (B, n) each.
            more_gates: what inputs that stay the same add to the gates, (B, 4n).
        """
        h, cell = state
        both = ops.concatenate([vector, h], axis=1)  # (B, inputs + n)
        gates = ops.matmul(both, self.kernel) + self.bias + more_gates
        return lstm_update(gates, cell)
