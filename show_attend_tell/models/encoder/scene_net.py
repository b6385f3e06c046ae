"""Build SceneNet, a small encoder for synthetic scenes with packaged weights.

Seven convolutions with batch normalisation and ReLU, three of them with stride 2, make
a map of one cell per 8 x 8 pixels: 14 x 14 for pictures of 112. The receptive field of
a cell is 59 pixels, so that an annotation vector describes its location. Its
position is encoded by four channels of coordinates (CoordConv, Liu et al.,
arXiv:1807.03247). They are appended to the output and not to the input, so that the
mean over the map, from which the captioner starts, contains the objects of a scene but
not their positions, which require attention.

The program that trained the weights is in the history of the repository, last in the
commit 54dc2062: ``git show 54dc2062:data_prep/scenes/train_scene_net.py``.
"""

import keras
from keras import layers, ops

from show_attend_tell.reference.encoder import SCENE_NET, SCENE_NET_EDGE
from show_attend_tell.reference.encoder import SCENE_NET_WEIGHTS as WEIGHTS
from show_attend_tell.runtime.errors import ModelFileError

__all__ = ["IMAGE_SIZE", "STRIDE", "WEIGHTS", "WIDTH", "Edges", "build_scene_net"]

IMAGE_SIZE = 112  # side in pixels that the weights were trained on
STRIDE = 8  # pixels of the picture per cell of the map
WIDTH = 64  # D


@keras.saving.register_keras_serializable("show_attend_tell")
class Edges(layers.Layer):
    """Append the nearness of each cell to the top, bottom, left and right edge.

    Four channels rise from 0 in the middle of the map to `scale` at the edge.
    """

    def __init__(self, scale=1.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, maps):
        """Map (B, rows, columns, C) to (B, rows, columns, C + 4)."""
        batch, rows, columns = ops.shape(maps)[:3]
        row = ops.reshape(ops.linspace(-1.0, 1.0, rows), (1, rows, 1, 1))
        column = ops.reshape(ops.linspace(-1.0, 1.0, columns), (1, 1, columns, 1))
        shape = (batch, rows, columns, 1)
        near = [  # four of (B, rows, columns, 1)
            ops.cast(ops.broadcast_to(self.scale * ops.relu(axis), shape), maps.dtype)
            for axis in (-row, row, -column, column)
        ]
        return ops.concatenate([maps, *near], axis=-1)

    def compute_output_shape(self, input_shape):
        """Return the shape with four more channels."""
        return (*input_shape[:-1], input_shape[-1] + 4)

    def get_config(self):
        """Return the config of every layer and the scale."""
        return {**super().get_config(), "scale": self.scale}


def build_scene_net(image_size: int = IMAGE_SIZE) -> keras.Model:
    """Build the network with random weights.

    Args:
        image_size: side of the pictures in pixels, a multiple of 8.

    Returns:
        A model from (B, image_size, image_size, 3) RGB in 0..255 to the layer
        ``annotations``, (B, image_size / 8, image_size / 8, 64) after its ReLU.

    Raises:
        ModelFileError: ``image_size`` is not a multiple of 8.
    """
    if image_size % STRIDE:
        raise ModelFileError(
            f"`image_size` of SceneNet must be a multiple of {STRIDE}. "
            f"Received: {image_size}; use {IMAGE_SIZE}, the side of its weights"
        )
    pixels = keras.Input((image_size, image_size, 3), name="pixels")
    maps = layers.Rescaling(1.0 / 127.5, offset=-1.0, name="scale")(pixels)
    for index, (width, stride) in enumerate(SCENE_NET, start=1):
        # (B, side, side, C) -> (B, side / stride, side / stride, width)
        # Without a bias: beta of the normalisation that follows is one.
        maps = layers.Conv2D(
            width, 3, stride, "same", use_bias=False, name=f"conv{index}"
        )(maps)
        maps = layers.BatchNormalization(momentum=0.9, name=f"norm{index}")(maps)
        maps = layers.ReLU(name=f"relu{index}")(maps)
    # The other four channels are the edges.
    seen = layers.Conv2D(WIDTH - 4, 1, activation="relu", name="seen")(maps)
    annotations = Edges(SCENE_NET_EDGE, name="annotations")(seen)
    return keras.Model(pixels, annotations, name="SceneNet")
