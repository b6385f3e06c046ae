"""Define initial weights that Keras does not have."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("show_attend_tell")
class OrthogonalGates(keras.initializers.Initializer):
    """One orthogonal matrix for each gate, side by side: (n, 4n)."""

    def __init__(self, seed=0):
        self.seed = seed

    def __call__(self, shape, dtype=None):
        """Return the matrix; `shape` must be (n, 4n)."""
        seeds = range(self.seed, self.seed + 4)
        blocks = [
            keras.initializers.Orthogonal(seed=s)((shape[0], shape[0]), dtype=dtype)
            for s in seeds
        ]
        return ops.concatenate(blocks, axis=-1)

    def get_config(self):
        """Return the seed."""
        return {"seed": self.seed}
