"""Advance the recurrent layers of a reader: an LSTM or a plain recurrent network."""

import keras
import numpy as np
from keras import ops

from show_attend_tell.models.lstm.cell import OrthogonalGates, lstm_update
from show_attend_tell.runtime.backend import scan

_GATES = {"lstm": 4, "rnn": 1}


class Cell(keras.layers.Layer):
    """A recurrent layer whose state starts at zero.

    ``rnn``: s_t = tanh(W x_t + U s_{t-1} + b). ``lstm``: :func:`lstm_update` of the
    same sum for its four gates, with the bias 1 of the forget gate at the start.

    Args:
        kind: ``lstm`` or ``rnn``.
        inputs: width of x.
        width: n.
        seed: seed of the initial weights.
    """

    def __init__(self, kind, inputs, width, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.kind, self.inputs, self.width, self.seed = kind, inputs, width, seed
        self.gates = _GATES[kind] * width
        orthogonal = keras.initializers.Orthogonal(seed=seed)
        if kind == "lstm":
            orthogonal = OrthogonalGates(seed)
        self.kernel = self.add_weight(
            shape=(inputs, self.gates),
            initializer=keras.initializers.GlorotUniform(seed=seed + 10),
            name="kernel",
        )
        self.recurrent = self.add_weight(
            shape=(width, self.gates), initializer=orthogonal, name="recurrent"
        )
        self.bias = self.add_weight(
            shape=(self.gates,), initializer="zeros", name="bias"
        )
        if kind == "lstm":
            gates = np.zeros(self.gates, np.float32)
            gates[width : 2 * width] = 1.0  # of the forget gate, the second one
            self.bias.assign(gates)
        self.built = True

    def project(self, x):
        """Return W x + b, (..., inputs) -> (..., gates)."""
        return ops.matmul(x, self.kernel) + self.bias

    def start(self, rows):
        """Return the state before the first step, a tuple of (B, n)."""
        zeros = ops.zeros((rows, self.width))
        return (zeros, zeros) if self.kind == "lstm" else (zeros,)

    def step(self, projected, state):
        """Advance by one step; the first of the returned state is s_t.

        Args:
            projected: W x_t + b and what is added to it, (..., gates).
            state: a tuple of (..., n).
        """
        total = projected + ops.matmul(state[0], self.recurrent)
        if self.kind == "lstm":
            return lstm_update(total, state[1])
        return (ops.tanh(total),)

    def unroll(self, projected):
        """Return s_1 .. s_T of projected inputs, (B, T, gates) -> (B, T, n)."""

        def advance(state, x):
            state = self.step(x, state)
            return state, {"s": state[0]}

        start = self.start(ops.shape(projected)[0])
        return scan(advance, start, projected, projected.shape[1])[1]["s"]
