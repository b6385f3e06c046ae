"""Compile the training step of a reader on TensorFlow: the decoder alone by XLA."""

import functools
from collections.abc import Callable

import tensorflow as tf

from show_attend_tell.siblings.words.augmentation import change_crops, normalised
from show_attend_tell.siblings.words.data import PAD
from show_attend_tell.siblings.words.model import Reader, shifted, word_losses
from show_attend_tell.siblings.words.settings import ReaderTrainingSettings


def reading_step(model: Reader, settings: ReaderTrainingSettings) -> Callable:
    """See :func:`words.step.reading_step`.

    XLA compiles the decoder alone: its convolutions are slower on a processor. It
    compiles the decoder together with its gradient: a loop of many steps saves lists
    for the gradient, which cannot leave a compiled function.
    """
    encoder, decoder = (
        [weight.value for weight in part.trainable_weights]
        for part in (model.encoder, model.decoder)
    )

    @functools.partial(tf.function, autograph=False, jit_compile=settings.jit_compile)
    def read_part(targets, annotations):
        """Return sums of losses and of entropies, and the gradients of the losses."""
        with tf.GradientTape() as tape:
            # A tape watches only variables by itself.
            tape.watch(annotations)
            logits = model.teacher_force(shifted(targets), annotations)["logits"]
            losses = word_losses(logits, targets, settings.label_smoothing)
            total = tf.reduce_sum(losses)
        # To log, without label smoothing; outside the tape, so that it has no gradient.
        entropy = tf.reduce_sum(word_losses(logits, targets))
        return total, entropy, tape.gradient(total, [annotations, *decoder])

    def step(crops, parts, changes):
        B = crops.shape[0]
        first = 0
        results = []
        if changes:
            crops = change_crops(crops, changes)
        images = normalised(crops)[..., None]
        # The tape of the encoder ends here: `read_part` returns the decoder's
        # gradients.
        with tf.GradientTape() as tape:
            annotations = model.encoder(
                images, training=True, precision=settings.precision
            )
        for targets in parts:
            last = first + targets.shape[0]
            results.append(read_part(targets, annotations[first:last]))
            first = last
        losses, entropies, gradients = zip(*results, strict=True)
        of_annotations, *of_decoder = zip(*gradients, strict=True)
        of_annotations = tf.concat(of_annotations, axis=0) / B
        # The chain rule by hand: the annotations' gradient continues into the encoder.
        of_encoder = tape.gradient(annotations, encoder, of_annotations)
        of_decoder = [tf.add_n(each) / B for each in of_decoder]
        # In the order of the model's weights: the encoder is created before the
        # decoder.
        model.optimizer.apply(of_encoder + of_decoder)
        entropy = tf.add_n(entropies) / B
        # Of each word, with its end.
        characters = sum(tf.math.count_nonzero(part != PAD) for part in parts) / B
        return {
            "loss": tf.add_n(losses) / B,
            "word_loss": entropy,
            "character_loss": entropy / tf.cast(characters, entropy.dtype),
        }

    return tf.function(step, autograph=False)
