"""Choose the training step of a reader for the backend that Keras runs on."""

from collections.abc import Callable

import keras
from keras import ops

from show_attend_tell.siblings.words.augmentation import change_crops, normalised
from show_attend_tell.siblings.words.data import PAD
from show_attend_tell.siblings.words.model import Reader, shifted, word_losses
from show_attend_tell.siblings.words.settings import ReaderTrainingSettings
from show_attend_tell.training.step import model_step


def reading_step(model: Reader, settings: ReaderTrainingSettings) -> Callable:
    """Return the training step, a function of a :class:`Batch` of tensors.

    It returns the loss, and the cross entropy per word and per character, in nats.

    Args:
        model: the reader, which is compiled before the first update.
        settings: the settings of training.
    """
    if keras.backend.backend() == "tensorflow":
        from show_attend_tell.siblings.words import step_tensorflow

        return step_tensorflow.reading_step(model, settings)

    def values_of(crops, parts, changes):
        B = crops.shape[0]
        if changes:
            crops = change_crops(crops, changes)
        # One pass for both parts, which differ only in the decoder's number of steps.
        annotations = model.encoder(
            normalised(crops)[..., None], training=True, precision=settings.precision
        )
        loss = 0.0
        entropy = 0.0
        characters = 0.0  # of each word, with its end
        first = 0
        for targets in parts:
            last = first + targets.shape[0]
            part = annotations[first:last]
            logits = model.teacher_force(shifted(targets), part)["logits"]
            losses = word_losses(logits, targets, settings.label_smoothing)
            # B is the whole batch: the mean over words does not depend on how it is
            # divided.
            loss += ops.sum(losses) / B
            entropy += ops.sum(word_losses(logits, targets)) / B
            characters += ops.sum(ops.cast(targets != PAD, "float32")) / B
            first = last
        return {
            "loss": loss,
            "word_loss": entropy,
            "character_loss": entropy / characters,
        }

    return model_step(model, values_of, settings.jit_compile)
