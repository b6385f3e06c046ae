"""Advance the gated cell, and initialise its recurrent matrix.

The captioner's decoder uses this cell, and so do models of plug-ins.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable("show_attend_tell")
class OrthogonalGates(keras.initializers.Initializer):
    """One orthogonal matrix for each gate, side by side: (n, 4n)."""

    def __init__(self, seed=0):
        self.seed = seed

    def __call__(self, shape, dtype=None):
        """Return the matrix; `shape` must be (n, 4n)."""
        # Four blocks, as one orthogonal initialisation of (n, 4n) would make the whole
        # rows orthonormal and no gate's matrix orthogonal.
        seeds = range(self.seed, self.seed + 4)
        blocks = [
            keras.initializers.Orthogonal(seed=s)((shape[0], shape[0]), dtype=dtype)
            for s in seeds
        ]
        return ops.concatenate(blocks, axis=-1)

    def get_config(self):
        """Return the seed."""
        return {"seed": self.seed}


def lstm_update(gates, c):
    """Advance the LSTM, Eq. (1)-(3): c' = f*c + i*g, h' = o*tanh(c').

    Args:
        gates: the affine map of [E y, h, z_hat] in the order i, f, o, g; (..., 4n).
        c: (..., n).

    Returns:
        h' and c', (..., n).
    """
    # (..., 4n) -> four of (..., n). Split, not sliced: the gradient of a slice is a sum
    # of padded tensors, which XLA computes by going through the gates again.
    i, f, o, g = ops.split(gates, 4, axis=-1)
    i = ops.sigmoid(i)
    f = ops.sigmoid(f)
    o = ops.sigmoid(o)
    g = ops.tanh(g)
    c = f * c + i * g
    return o * ops.tanh(c), c
