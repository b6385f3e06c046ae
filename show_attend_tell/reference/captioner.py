"""Read photos and write words with one captioner of a model file."""

import numpy as np

from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.reference.encoder import convolve
from show_attend_tell.reference.model_file import Model


class Captioner:
    """One captioner.

    Args:
        model: from :func:`reference.model_file.read_model`.
    """

    def __init__(self, model: Model):
        self._model, config = model, model.config
        self.vocabulary = Vocabulary(config.vocabulary)
        self.settings, self.transformer = config.settings, config.transformer
        self.decoding = config.decoding
        self.grid, self.annotation_width = config.grid, config.annotation_width
        self.encoder_identity = model.encoder_identity

    @property
    def weights(self) -> list[np.ndarray]:
        """The arrays of the file, in the order of Keras."""
        return list(self._model.weights.values())

    def annotations(self, features) -> np.ndarray:
        """Return the scaled annotations of features as stored, (L, D)."""
        a, p = features.astype(np.float32), self._model.weights
        for name in self._model.config.convolutions:
            a = a.reshape(*self.grid, -1)
            a = convolve(a, p[f"{name}_kernel"], p[f"{name}_bias"])
            a = a.reshape(-1, self.annotation_width)
        return a * p["annotation_scale"]

    def read_photo(self, features):
        """Return what every step reads of a photo, from features (L, D)."""
        return self._call("read_photo", self.annotations(features), self.grid)

    def attention_heads(self, features, tokens, bias=None) -> np.ndarray | None:
        """Return the attention of each layer and head at given words.

        Args:
            features: as stored, (N, L, D).
            tokens: y_0 .. y_{T-1}, (N, T).
            bias: (N, T, L), see :func:`reference.lstm.region_bias`, or None.

        Returns:
            An array (N, layers, H, T, L), or None if the decoder has no heads.
        """
        biases = [None] * len(tokens) if bias is None else bias
        outputs = [
            self._call("read", self.annotations(photo), words, self.grid, None, b)
            for photo, words, b in zip(features, tokens, biases, strict=True)
        ]
        return (
            np.stack([out["heads"] for out in outputs])
            if "heads" in outputs[0]
            else None
        )

    def start(self, photo) -> dict:
        """Return the decoder's state before the first word."""
        return self._call("start", photo)

    def step(self, *args):
        """Advance hypotheses by one word, see :func:`reference.lstm.step`."""
        return self._call("step", *args)

    def _call(self, name: str, *args):
        function = getattr(self._model.decoder, name)
        return function(self._model.weights, self._model.settings, *args)
