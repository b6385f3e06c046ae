"""Define what all classifiers of digits share, and the classifiers of whole pictures.

The latter are the baselines of Sec. 4.1 of arXiv:1406.6247.
"""

from typing import Annotated, ClassVar

import keras
import numpy as np
from keras import ops
from pydantic import Field

from show_attend_tell.siblings.common.layers import SiblingModel, make_dense
from show_attend_tell.siblings.digits.settings import ClassifierSettings

# The convolution of the paper's baseline, Sec. 4.1.
FILTERS = 8
KERNEL_SIDE = 10  # pixels
STRIDE = 5  # pixels
# Of a class's folder: 255 bytes at most, each maybe escaped by six characters.
_Name = Annotated[str, Field(min_length=1, max_length=6 * 255)]


class DigitClassifier(SiblingModel):
    """A classifier of pictures; a subclass adds its layers and :meth:`call`.

    Attributes:
        glimpses: number of glimpses at a picture, 0 if the model sees it whole.

    Args:
        settings: see :class:`SiblingModel`, as for ``seed``.
        canvas: H, side of a picture in pixels.
        classes: number of classes.
        names: their names, by default their numbers.

    Raises:
        ValueError: there are more or fewer names than classes.
    """

    sizes = ("canvas", "classes")
    # Empty in a file that `convert` writes of version 0.3, whose classes are digits.
    texts: ClassVar = {"names": (tuple[_Name, ...], ())}
    glimpses = 0

    def __init__(self, settings, canvas, classes=10, seed=0, names=(), **kwargs):
        super().__init__(settings, seed, **kwargs)
        self.names = tuple(names) or tuple(map(str, range(classes)))
        if len(self.names) != classes:
            raise ValueError(f"must have {classes} names. Received: {len(names)}")
        self.canvas = canvas
        self.classes = classes

    def losses_of(self, labels, outputs) -> dict:
        """Return the loss of a training step and the values to log, as scalars.

        Args:
            labels: class of each picture, (B,).
            outputs: of :meth:`call`.

        Returns:
            ``loss`` and ``cross_entropy``, which are equal, and ``error`` in percent.
        """
        labels = ops.cast(labels, "int32")
        logits = outputs["logits"]
        loss = ops.mean(
            keras.losses.sparse_categorical_crossentropy(
                labels, logits, from_logits=True
            )
        )
        wrong = ops.not_equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), labels)
        error = 100 * ops.mean(ops.cast(wrong, "float32"))
        return {"loss": loss, "cross_entropy": loss, "error": error}


@keras.saving.register_keras_serializable("show_attend_tell")
class PictureClassifier(DigitClassifier):
    """Dense layers on all pixels, or on a layer of convolutions."""

    settings_class = ClassifierSettings

    def __init__(self, settings, canvas, classes=10, seed=0, names=(), **kwargs):
        super().__init__(settings, canvas, classes, seed, names, **kwargs)
        settings = self.settings
        states = np.random.SeedSequence(seed).generate_state(len(settings.widths) + 2)
        kernels = (keras.initializers.GlorotUniform(int(k)) for k in states)
        self.convolution = None
        width = canvas**2
        if settings.kind == "convolution":
            self.convolution = keras.layers.Conv2D(
                FILTERS,
                KERNEL_SIDE,
                STRIDE,
                activation="relu",
                kernel_initializer=next(kernels),
                name="convolution",
            )
            self.convolution.build((None, canvas, canvas, 1))
            positions = (canvas - KERNEL_SIDE) // STRIDE + 1  # of a filter on an axis
            width = FILTERS * positions**2
        self.hidden = []
        for number, units in enumerate(settings.widths, start=1):
            name = f"hidden_{number}"
            self.hidden.append(make_dense(width, units, name, next(kernels), "relu"))
            width = units
        self.act = make_dense(width, classes, "act", next(kernels))
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
