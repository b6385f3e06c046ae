"""SceneNet: a small encoder for the drawn scenes, whose weights come with the package.

Six convolutions with batch normalisation and ReLU, three of them with stride 2, make
a map of one cell per 8 x 8 pixels: 14 x 14 for pictures of 112. A cell sees 59 pixels,
so that an annotation vector speaks of its own place; where that place lies is told to
the last layer by two channels of coordinates (CoordConv, Liu et al., arXiv:1807.03247).

The weights were made from random ones by ``python -m data_prep.train_scene_net``.
"""

from importlib.resources import files
from pathlib import Path

import keras
from keras import layers, ops

IMAGE_SIZE = 112  # pixels; the side the weights were trained on
STRIDE = 8  # pixels of the picture to a cell of the map
WIDTH = 64  # D
WEIGHTS = Path(str(files(__package__))) / "weights" / "scene_net.weights.h5"

# Width and stride of each convolution.
_CONVOLUTIONS = ((16, 2), (24, 1), (32, 2), (48, 1), (64, 2), (64, 1), (64, 1))


@keras.saving.register_keras_serializable("show_attend_tell")
class Coordinates(layers.Layer):
    """Append the row and the column of each cell, from -1 to 1, as two channels."""

    def call(self, maps):
        """Map (B, rows, columns, C) to (B, rows, columns, C + 2)."""
        batch, rows, columns = ops.shape(maps)[:3]
        row = ops.reshape(ops.linspace(-1.0, 1.0, rows), (1, rows, 1, 1))
        column = ops.reshape(ops.linspace(-1.0, 1.0, columns), (1, 1, columns, 1))
        shape = (batch, rows, columns, 1)
        row, column = (
            ops.cast(ops.broadcast_to(values, shape), maps.dtype)
            for values in (row, column)
        )
        return ops.concatenate([maps, row, column], axis=-1)

    def compute_output_shape(self, input_shape):
        """Return the shape with two channels more."""
        return (*input_shape[:-1], input_shape[-1] + 2)


def build(image_size: int = IMAGE_SIZE) -> keras.Model:
    """Build the network with random weights.

    Args:
        image_size: side of the pictures in pixels, a multiple of 8.

    Returns:
        A model from (B, image_size, image_size, 3) RGB in 0..255 to the layer
        ``annotations``, (B, image_size / 8, image_size / 8, 64) after its ReLU.

    Raises:
        ValueError: ``image_size`` is no multiple of 8.
    """
    if image_size <= 0 or image_size % STRIDE:
        raise ValueError(
            f"`image_size` of SceneNet must be a multiple of {STRIDE}. "
            f"Received: {image_size}; its weights were trained on {IMAGE_SIZE}"
        )
    pixels = keras.Input((image_size, image_size, 3), name="pixels")
    maps = layers.Rescaling(1.0 / 127.5, offset=-1.0, name="scale")(pixels)
    for index, (width, stride) in enumerate(_CONVOLUTIONS, start=1):
        maps = layers.Conv2D(
            width, 3, stride, "same", use_bias=False, name=f"conv{index}"
        )(maps)
        maps = layers.BatchNormalization(momentum=0.9, name=f"norm{index}")(maps)
        maps = layers.ReLU(name=f"relu{index}")(maps)
    maps = Coordinates(name="coordinates")(maps)
    annotations = layers.Conv2D(WIDTH, 1, activation="relu", name="annotations")(maps)
    return keras.Model(pixels, annotations, name="SceneNet")
