"""Define the arguments and the loss that all classifiers of digits share."""

import dataclasses

import keras
from keras import ops


class DigitClassifier(keras.Model):
    """A classifier of pictures; a subclass adds its layers and :meth:`call`.

    Attributes:
        settings_class: dataclass of the settings.

    Args:
        settings: an instance of ``settings_class``, or its values.
        canvas: H, side of a picture in pixels.
        classes: number of classes.
        seed: seed of the initial weights.
    """

    settings_class: type

    def __init__(self, settings, canvas, classes=10, seed=0, **kwargs):
        super().__init__(**kwargs)
        if isinstance(settings, dict):
            settings = self.settings_class(**settings)
        self.settings, self.canvas = settings, canvas
        self.classes, self.seed = classes, seed

    def losses_of(self, labels, outputs, training=True) -> dict:
        """Return the loss and the values to log, as scalars.

        Args:
            labels: class of each picture, (B,).
            outputs: of :meth:`call`.
            training: ignored.

        Returns:
            ``loss`` and ``cross_entropy``, which are equal, and ``error`` in percent.
        """
        labels, logits = ops.cast(labels, "int32"), outputs["logits"]
        loss = ops.mean(
            keras.losses.sparse_categorical_crossentropy(
                labels, logits, from_logits=True
            )
        )
        wrong = ops.not_equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), labels)
        error = 100 * ops.mean(ops.cast(wrong, "float32"))
        return {"loss": loss, "cross_entropy": loss, "error": error}

    def get_config(self):
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "settings": dataclasses.asdict(self.settings),
            "canvas": self.canvas,
            "classes": self.classes,
            "seed": self.seed,
        }
