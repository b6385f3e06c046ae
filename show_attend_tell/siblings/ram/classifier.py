"""Classify whole pictures: the baselines of Sec. 4.1 of arXiv:1406.6247."""

import keras
import numpy as np
from keras import ops

from show_attend_tell.config.siblings import ClassifierSettings
from show_attend_tell.siblings.classifier import DigitClassifier
from show_attend_tell.siblings.ram.model import make_dense

FILTERS, FILTER, STRIDE = 8, 10, 5  # of the paper's convolution


@keras.saving.register_keras_serializable("show_attend_tell")
class PictureClassifier(DigitClassifier):
    """Dense layers on all pixels, or on a layer of convolutions."""

    settings_class = ClassifierSettings

    def __init__(self, settings, canvas, classes=10, seed=0, **kwargs):
        super().__init__(settings, canvas, classes, seed, **kwargs)
        settings = self.settings
        states = np.random.SeedSequence(seed).generate_state(len(settings.widths) + 2)
        seeds = (int(k) for k in states)
        self.convolution, width = None, canvas**2
        if settings.kind == "convolution":
            self.convolution = keras.layers.Conv2D(
                FILTERS,
                FILTER,
                STRIDE,
                activation="relu",
                kernel_initializer=keras.initializers.GlorotUniform(seed=next(seeds)),
                name="convolution",
            )
            self.convolution.build((None, canvas, canvas, 1))
            width = FILTERS * ((canvas - FILTER) // STRIDE + 1) ** 2
        self.hidden = []
        for number, units in enumerate(settings.widths, start=1):
            layer = make_dense(seeds, width, units, f"hidden_{number}", "relu")
            self.hidden.append(layer)
            width = units
        self.act = make_dense(seeds, width, classes, "act")
        self.built = True

    def call(self, images, training=False):
        """Return ``logits`` (B, classes) of pictures (B, H, H) in [0, 1]."""
        hidden = images
        if self.convolution is not None:
            hidden = self.convolution(ops.expand_dims(images, -1))
        # (B, H, H) or (B, rows, columns, filters) -> (B, features)
        hidden = ops.reshape(hidden, (-1, int(np.prod(hidden.shape[1:]))))
        for layer in self.hidden:
            hidden = layer(hidden)
        return {"logits": self.act(hidden)}
