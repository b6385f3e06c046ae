"""Read words: p(word | crop), the model of arXiv:1603.03101.

The loss of a word is -sum_t log p(y_t | y_<t, crop) over its characters and ``<end>``;
the loss of a batch is the mean over its words. :mod:`encoder` and :mod:`decoder` have
the equations.
"""

import keras
from keras import ops

from show_attend_tell.models.losses import token_losses
from show_attend_tell.siblings.common.layers import SiblingModel
from show_attend_tell.siblings.words.data import PAD, START
from show_attend_tell.siblings.words.decoder import WordDecoder
from show_attend_tell.siblings.words.encoder import CropEncoder
from show_attend_tell.siblings.words.settings import ReaderSettings


@keras.saving.register_keras_serializable("show_attend_tell")
class Reader(SiblingModel):
    """A reader of word crops."""

    settings_class = ReaderSettings

    def __init__(self, settings, seed=0, **kwargs):
        super().__init__(settings, seed, **kwargs)
        settings = self.settings
        self.encoder = CropEncoder(settings, seed, name="encoder")
        width = settings.feature_width
        if settings.reads_places:
            width = self.encoder.shape_of_places[1]
        self.decoder = WordDecoder(settings, width, seed, name="decoder")
        self.built = True

    @property
    def grid(self):
        """Rows and columns of the places that alpha weighs; None without places."""
        return self.encoder.grid if self.settings.reads_places else None

    def call(self, inputs, training=False):
        """Compute the logits of words.

        Args:
            inputs: ``image``, normalised crops (B, 32, 100, 1), and ``tokens``,
                y_0 .. y_{T-1} (B, T); y_0 is the start token.
            training: see :class:`encoder.CropEncoder`.

        Returns:
            ``logits`` (B, T, K), and ``alpha`` (B, T, L), 1 without attention.
        """
        annotations = self.encoder(inputs["image"], training=training)
        return self.teacher_force(inputs["tokens"], annotations)

    def teacher_force(self, tokens, annotations):
        """Return the outputs of :meth:`call` for annotations of the encoder."""
        memory = self.decoder.memory(annotations)
        logits, alpha = self.decoder.teacher_force(tokens, memory)
        return {"logits": logits, "alpha": alpha}


def shifted(targets):
    """Return the inputs y_0 .. y_{T-1} of targets y_1 .. y_T, (B, T)."""
    start = ops.full_like(targets[:, :1], START)
    return ops.concatenate([start, targets[:, :-1]], axis=1)


def word_losses(logits, targets, label_smoothing=0.0):
    """Return -sum_t log p(y_t) of each word, (B,), in nats, without its padding.

    Args:
        logits: (B, T, K).
        targets: characters, ``<end>`` and padding, (B, T).
        label_smoothing: see :func:`models.losses.token_losses`.
    """
    losses = token_losses(logits, targets, label_smoothing)
    is_character = ops.cast(ops.not_equal(targets, PAD), losses.dtype)
    return ops.sum(losses * is_character, axis=1)
