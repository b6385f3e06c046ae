"""Compute the annotations of crops: convolutions, pooling, and dense layers.

Four stages of convolutions, the first three followed by the maximum of 2 x 2 pixels,
reduce 32 x 100 pixels to a grid of 4 x 12 places. ``plain`` has two layers per stage;
the other kinds replace the second layer with their iterations (Sec. 3.1 and Table 1 of
arXiv:1603.03101, which has 64, 128, 256 and 512 channels).
"""

import itertools

import keras
import numpy as np
from keras import ops
from keras.initializers import HeNormal

from show_attend_tell.models.decoder_interface import MatrixLayer
from show_attend_tell.siblings.common.layers import make_dense
from show_attend_tell.siblings.words.convolutions import (
    MOMENTUM,
    RecursiveConvolution,
)
from show_attend_tell.siblings.words.data import HEIGHT, WIDTH

POOL = 2  # pixels, and the stride of pooling


class CropEncoder(MatrixLayer):
    """Compute the annotations of crops.

    Args:
        settings: a :class:`words.settings.ReaderSettings`.
        seed: seed of dropout and of the initial weights, but for the embedding of the
            columns, which is the same for all seeds.
    """

    def __init__(self, settings, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.settings = settings
        self.seed = seed
        s = settings
        # 50 apart, because each kernel of a convolution, at most 18, has its own.
        seeds = itertools.count(seed * 1000, 50)
        self.layers_per_stage = 2 if s.convolution == "plain" else 1
        # A second layer of equal width where the other kinds iterate.
        widths = [
            pair
            for inputs, outputs in itertools.pairwise((1, *s.channels))
            for pair in ((inputs, outputs), (outputs, outputs))[: self.layers_per_stage]
        ]
        self.convolutions = [  # in one list, because Keras saves no nested lists
            RecursiveConvolution(
                s.convolution,
                inputs,
                outputs,
                s.iterations,
                s.batch_norm,
                s.share_feedforward,
                next(seeds),
                name="convolution_{}_{}".format(*divmod(k, self.layers_per_stage)),
            )
            for k, (inputs, outputs) in enumerate(widths)
        ]
        # Between the stages, and not after the last.
        halvings = len(s.channels) - 1
        self.grid = HEIGHT // POOL**halvings, WIDTH // POOL**halvings
        places = int(np.prod(self.grid))
        width = s.channels[-1]
        self.shape_of_places = places, width
        if s.reads_places:
            rows, columns = self.grid
            self.row_embedding = self.matrix(
                "row_embedding", rows, width, seeds, "normal"
            )
            self.column_embedding = self.matrix(
                "column_embedding", columns, width, itertools.repeat(0), "normal"
            )
        else:
            widths = [places * width, s.feature_width, s.feature_width]
            self.dense = [
                make_dense(inputs, outputs, f"dense_{k}", HeNormal(next(seeds)), "relu")
                for k, (inputs, outputs) in enumerate(itertools.pairwise(widths))
            ]
            self.dropout = keras.layers.Dropout(s.feature_dropout, seed=next(seeds))
        self.built = True

    @property
    def statistics(self):
        """The stored mean and variance of each batch normalisation."""
        return [pair for layer in self.convolutions for pair in layer.statistics]

    def call(self, images, training=False, precision="float32", momentum=MOMENTUM):
        """Return the annotations of crops.

        Args:
            images: normalised crops, (B, 32, 100, 1).
            training: whether to normalise batches by their own statistics, and to drop
                features.
            precision: type of the convolutions.
            momentum: see :meth:`RecursiveConvolution.call`.

        Returns:
            a, (B, L, C), where each place has an embedding of its row and an embedding
            of its column added; or features, (B, F), if the settings require them.
        """
        # The convolutions keep this type, because they do not autocast.
        h = ops.cast(images, precision)
        for number, layer in enumerate(self.convolutions):
            # Before the first layer of each stage but the first.
            if number and number % self.layers_per_stage == 0:
                h = ops.max_pool(h, POOL, POOL, padding="valid")
            h = layer(h, training=training, momentum=momentum)
        h = ops.cast(h, "float32")  # (B, rows, columns, C)
        L, C = self.shape_of_places
        if not self.settings.reads_places:
            h = ops.reshape(h, (-1, L * C))
            for layer in self.dense:
                h = self.dropout(layer(h), training=training)
            return h  # (B, F)
        # (B, rows, columns, C) + (rows, 1, C) + (columns, C)
        h = h + ops.expand_dims(self.row_embedding, 1) + self.column_embedding
        return ops.reshape(h, (-1, L, C))
