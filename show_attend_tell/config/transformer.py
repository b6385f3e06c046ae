"""Define the settings of the Transformer decoder."""

from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config.fields import STRICT, Count, Positive, Rate


@dataclass(frozen=True, config=STRICT)
class TransformerSettings:
    """The widths and switches of the decoder with ``model.decoder = "transformer"``.

    The equations are in :mod:`show_attend_tell.models.transformer.decoder`. Of the
    table ``[model]`` it uses ``embedding_dropout``, ``channel_dropout`` and
    ``scale_annotations``.

    Attributes:
        layers: N. width: d, a multiple of 4 and of ``heads``. heads: H.
        hidden: width of the feed-forward layers.
        dropout: rate on the embedded words with their positions, and on the output of
            each sublayer before it is added.
        norm: position of the layer normalisation: ``pre``, before each sublayer and
            after the last layer, or ``post``, after each sum (the paper's), which needs
            ``training.warmup_steps``.
        encoder_layers: layers of self-attention over the photo's locations; 0 for
            none.
        positions: ``grid`` adds sines of row and column to each location; ``none``
            leaves the order of locations unknown.
        tie_output: whether the matrix of the output is the transpose of E.
        alpha_layer: number of the layer, from 1, whose attention on the photo is
            alpha, the mean over its heads; 0 for the last layer.
    """

    layers: Positive = 3
    width: Positive = 256
    heads: Positive = 4
    hidden: Positive = 1024
    dropout: Rate = 0.3
    norm: Literal["pre", "post"] = "pre"
    encoder_layers: Count = 0
    positions: Literal["grid", "none"] = "grid"
    tie_output: bool = True
    alpha_layer: Count = 0

    @model_validator(mode="after")
    def _check_sizes(self):
        if self.width % self.heads or self.width % 4:
            raise ValueError(
                "width must be a multiple of heads and of 4. Received: "
                f"width = {self.width}, heads = {self.heads}"
            )
        if self.alpha_layer > self.layers:
            raise ValueError(
                "alpha_layer must be at most layers; 0 is the last. Received: "
                f"alpha_layer = {self.alpha_layer}, layers = {self.layers}"
            )
        return self
