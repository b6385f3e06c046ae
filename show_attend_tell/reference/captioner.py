"""A captioner in NumPy: its settings, its weights and the equations of its decoder.

:mod:`reference.model_file` reads it from a file, and :mod:`reference.generator` writes
captions with it. The class of the same name in :mod:`models.captioner` is Keras'.
"""

from typing import Any

import numpy as np

from show_attend_tell.config.captioner import (
    DECODERS,
    ModelSettings,
    SavedConfig,
    TransformerSettings,
)
from show_attend_tell.data.encoder_identity import Identity
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.reference import lstm, transformer
from show_attend_tell.reference.decoder import (
    AnyEquations,
    Choose,
    NextWord,
    State,
    WeightLayout,
    Weights,
)

# The equations of config.captioner.DECODERS. Keras serves a decoder without.
EQUATIONS: dict[str, AnyEquations] = {"lstm": lstm, "transformer": transformer}


class Captioner:
    """A trained captioner.

    Attributes:
        settings: the table ``[model]``, of every decoder.
        transformer: the settings of a Transformer, which an LSTM leaves at defaults.
        decoding: the decoding settings saved with the model.
        vocabulary: the words.
        grid: (rows, columns) of the annotations; L is their product.
        annotation_width: D.

    Args:
        config: the configuration in its file.
        encoder_identity: the encoder of the annotations, as saved; keys may be absent.
        arrays: its weights by name, in the order of Keras; float32.
    """

    def __init__(
        self, config: SavedConfig, encoder_identity: Identity, arrays: Weights
    ):
        self.config = config
        self.arrays = arrays
        # The table that the decoder's functions get, [model] or [transformer].
        self._decoder_settings = _settings_of_decoder(config)
        self.vocabulary = Vocabulary(config.vocabulary)
        self.settings = config.settings
        self.transformer = config.transformer
        self.decoding = config.decoding
        self.grid = config.grid
        self.annotation_width = config.annotation_width
        self.encoder_identity = encoder_identity

    @property
    def _decoder(self) -> AnyEquations:
        return EQUATIONS[self.settings.decoder]

    @property
    def weights(self) -> list[np.ndarray]:
        """The arrays of the file, in the order of Keras."""
        return list(self.arrays.values())

    def annotations(self, features: np.ndarray) -> np.ndarray:
        """Return the scaled annotations of features as stored, (L, D)."""
        a: np.ndarray = features.astype(np.float32) * self.arrays["annotation_scale"]
        if not self.settings.attends:  # the mean annotation is the one location
            a = a.mean(axis=0, keepdims=True)
        return a

    def _over_locations(self, alpha: np.ndarray) -> np.ndarray:
        """Return alpha (..., L), uniform if the decoder reads only the mean."""
        if self.settings.attends:
            return alpha
        L = self.grid[0] * self.grid[1]
        return alpha * np.full(L, 1 / L, np.float32)  # (..., 1) -> (..., L)

    def read_photo(self, features: np.ndarray) -> Any:
        """Return what every step reads of a photo, from features (L, D).

        The type is ``Photo`` of the decoder's module.
        """
        a = self.annotations(features)
        return self._decoder.read_photo(
            self.arrays, self._decoder_settings, a, self.grid
        )

    def attention_heads(
        self, features: np.ndarray, tokens: np.ndarray, bias: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Return the attention of each layer and head at given words.

        Args:
            features: as stored, (N, L, D).
            tokens: y_0 .. y_{T-1}, (N, T).
            bias: (N, T, L), see :func:`reference.lstm.region_bias`, or None.

        Returns:
            An array (N, layers, H, T, L), or None if the decoder has no heads.
        """
        outputs = [
            self._decoder.read(
                self.arrays,
                self._decoder_settings,
                self.annotations(photo),
                words,
                self.grid,
                bias=None if bias is None else bias[k],
            )
            for k, (photo, words) in enumerate(zip(features, tokens, strict=True))
        ]
        # The LSTM's attention has no heads.
        if "heads" not in outputs[0]:
            return None
        return np.stack([self._over_locations(out["heads"]) for out in outputs])

    def start(self, photo: Any) -> State:
        """Return the decoder's state before the first word."""
        return self._decoder.start(self.arrays, self._decoder_settings, photo)

    def step(
        self,
        photo: Any,
        words: np.ndarray,
        state: State,
        choose: Choose | None = None,
        bias: np.ndarray | float = 0,
    ) -> NextWord:
        """Advance hypotheses by one word, see :func:`reference.lstm.step`."""
        out = self._decoder.step(
            self.arrays, self._decoder_settings, photo, words, state, choose, bias
        )
        return out._replace(alpha=self._over_locations(out.alpha))


def layout(config: SavedConfig) -> list[WeightLayout]:
    """Return the name and the shape of each weight, in the order of Keras."""
    # Keras lists the model's own weight first, and hard attention's layer last.
    weights: list[WeightLayout] = [("annotation_scale", ())]
    weights += EQUATIONS[config.settings.decoder].layout(
        _settings_of_decoder(config), len(config.vocabulary), config.annotation_width
    )
    if config.settings.attention == "hard":
        weights.append(("baseline", ()))
    return weights


def _settings_of_decoder(config: SavedConfig) -> ModelSettings | TransformerSettings:
    table: ModelSettings | TransformerSettings
    table = getattr(config, DECODERS[config.settings.decoder].table)
    return table
