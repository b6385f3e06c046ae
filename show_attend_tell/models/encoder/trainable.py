"""Apply the encoder's last convolutions inside the captioner, where they are trained.

The stored features x_0 are the output of the layer before. With the 3 x 3 kernels w_k
of K convolutions, zero padding and stride 1, the annotations a are::

    x_k = relu(w_k * x_{k-1} + b_k),      a = x_K

Every photo is convolved once for all of its captions in a batch: a batch of P photos
has B = P C captions, the C of each photo side by side.
"""

import keras
from keras import ops


class TrainableConvolutions(keras.layers.Layer):
    """The convolutions from ``encoder.trainable_from`` on, of width D.

    Attributes:
        kernels: w_k, (3, 3, D, D) each. biases: b_k, (D,) each.

    Args:
        names: names of the convolutions in the encoder.
        width: D.
        grid: rows and columns of the features.
        seed: seed of the initial weights, He's uniform ones.
    """

    def __init__(self, names, width, grid, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.names, self.width, self.grid = tuple(names), width, tuple(grid)
        self.seed = seed
        self.kernels = [
            self.add_weight(
                shape=(3, 3, width, width),
                initializer=keras.initializers.HeUniform(seed=1000 * seed + 900 + k),
                name=f"{name}_kernel",
            )
            for k, name in enumerate(self.names)
        ]
        self.biases = [
            self.add_weight(shape=(width,), initializer="zeros", name=f"{name}_bias")
            for name in self.names
        ]
        self.built = True

    def call(self, features, precision="float32"):
        """Return the annotations of stored features.

        Args:
            features: x_0, (P, L, D).
            precision: dtype of the convolutions.

        Returns:
            a, (P, L, D), in the dtype of the features.
        """
        rows, columns = self.grid
        x = ops.reshape(features, (-1, rows, columns, self.width))  # -> (P, r, c, D)
        x = ops.cast(x, precision)
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            x = ops.conv(x, ops.cast(kernel, precision), padding="same")
            x = ops.relu(x + ops.cast(bias, precision))
        x = ops.reshape(x, (-1, rows * columns, self.width))  # -> (P, L, D)
        return ops.cast(x, features.dtype)


def captions_per_photo(tokens, annotations):
    """Return C of tokens (P C, T) and annotations (P, L, D); 1 if B is not known."""
    B, P = tokens.shape[0], annotations.shape[0]
    return B // P if B and P else 1
