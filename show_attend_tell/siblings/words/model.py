"""Read words: p(word | crop), the model of arXiv:1603.03101.

The loss of a word is -sum_t log p(y_t | y_<t, crop) over its characters and ``<end>``;
the loss of a batch is the mean over its words. :mod:`encoder` and :mod:`decoder` have
the equations.
"""

from typing import Annotated, ClassVar

import keras
from keras import ops
from pydantic import AfterValidator

from show_attend_tell.models.losses import token_losses
from show_attend_tell.siblings.common.layers import SiblingModel, named_weights
from show_attend_tell.siblings.words.data import (
    CHARACTERS,
    PAD,
    START,
    require_alphabet,
    tokens_of,
)
from show_attend_tell.siblings.words.decoder import WordDecoder
from show_attend_tell.siblings.words.encoder import CropEncoder
from show_attend_tell.siblings.words.settings import ReaderSettings


@keras.saving.register_keras_serializable("show_attend_tell")
class Reader(SiblingModel):
    """A reader of word crops.

    Args:
        settings: see :class:`SiblingModel`, as for ``seed``.
        characters: the alphabet, each character once.
    """

    settings_class = ReaderSettings
    texts: ClassVar = {
        "characters": (Annotated[str, AfterValidator(require_alphabet)], CHARACTERS)
    }

    def __init__(self, settings, seed=0, characters=CHARACTERS, **kwargs):
        super().__init__(settings, seed, **kwargs)
        settings = self.settings
        self.characters = characters
        # Before the decoder: `step_tensorflow` passes the gradients in this order.
        self.encoder = CropEncoder(settings, seed, name="encoder")
        width = settings.feature_width
        if settings.reads_places:
            width = self.encoder.shape_of_places[1]
        tokens = len(tokens_of(characters))
        self.decoder = WordDecoder(settings, width, seed, tokens, name="decoder")
        self.built = True

    @property
    def grid(self):
        """Rows and columns of the places that alpha weighs; None without places."""
        return self.encoder.grid if self.settings.reads_places else None

    def extend(self, initial):
        """Take the weights of a reader whose alphabet this reader's begins with.

        Further characters keep their initial weights.

        Raises:
            ValueError: another weight has another shape.
        """
        K = len(tokens_of(initial.characters))
        others = named_weights(initial)
        own = named_weights(self)
        if others.keys() != own.keys():
            raise ValueError("other weights")
        for name, weight in own.items():
            values = ops.convert_to_numpy(others[name])
            if values.shape == tuple(weight.shape):
                weight.assign(values)
                continue
            # Of tokens: the rows of the embedding, the columns of the logits.
            place = (slice(K),) if name.endswith("embedding") else (..., slice(K))
            extended = ops.convert_to_numpy(weight).copy()
            if extended[place].shape != values.shape:
                raise ValueError(f"{name}: another shape")
            extended[place] = values
            weight.assign(extended)

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
